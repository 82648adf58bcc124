#!/usr/bin/env bash
# What attncalc measures on a GPU: `bash tools/gpu_box.sh FOLDER [MINUTES]`, about ten minutes beside those of the record.
# Besides torch it needs transformers and peft, for whole training steps.
set -u
cd "$(dirname "$0")/.."
out="$1"
mkdir -p "$out"

nvidia-smi --query-gpu=name,memory.total,memory.used,driver_version,power.limit --format=csv
python3 -m attncalc verify --smoke
for model in gpt2 llama3-8b gemma2-2b mixtral-8x7b olmo2-7b; do
    python3 -m attncalc verify "$model" --train --context 1024 --dtype bf16 --full -o "$out/train-$model.json"
    echo "$model --train: exit code $?"
done
python3 tools/measure_training.py -o "$out/training.json"
python3 -m attncalc verify --record "$out/measured" --minutes "${2:-10}"
code=$?
python3 tools/record_page.py "$out"/measured/*.json
exit $code
