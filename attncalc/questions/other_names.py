"""Names by which users of other tools know options that are of the command line only."""

ALSO = dict.fromkeys(
    (
        "--model",
        "-m",
        "--model-path",
        "--model-name",
        "--model-id",
        "--config",
        "--hf-repo",
        "-hf",
        "--repo-id",
        "--model-name-or-path",
        "--pretrained-model-name-or-path",
        "--base-model",
        "--model-config",
        "--config-name",
        "--arch",
        "--hf-model",
        "--hf-model-id",
        "--hf-id",
        "--pretrained",
        "--model-card",
    ),
    "--preset",
)
ALSO |= dict.fromkeys(
    ("--field", "--fields", "--column", "--columns", "--select", "--figures"), "--get"
)
ALSO |= {"--output-format": "--format", "--units": "--unit"}
"""{name of another tool: the option}."""
