// Unpacks attncalc.pack, which build_page.py writes: gzip of a line of JSON, [[path, bytes], ...], and the files' contents.
// A zip takes five times as long, since Python reads it file by file.

/** @param {Response} response @returns {Promise<(FS: any, target: string) => void>} what writes the files into a folder */
export async function unpack(response) {
  if (!response.ok) throw new Error(`${response.url} is not there (${response.status})`);
  const content = new Response(response.body.pipeThrough(new DecompressionStream("gzip")));
  const bytes = new Uint8Array(await content.arrayBuffer());
  const start = bytes.indexOf(10) + 1;
  const files = JSON.parse(new TextDecoder().decode(bytes.subarray(0, start)));
  const folders = new Set(files.map(([path]) => path.slice(0, Math.max(0, path.lastIndexOf("/")))));
  return (FS, target) => {
    for (const folder of folders) FS.mkdirTree(`${target}/${folder}`);
    let at = start;
    for (const [path, size] of files) FS.writeFile(`${target}/${path}`, bytes.subarray(at, (at += size)));
  };
}
