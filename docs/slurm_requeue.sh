#!/bin/bash
# sbatch docs/slurm_requeue.sh: train on two nodes; go on in the same folder if the time ends or SLURM takes the nodes
#SBATCH --job-name=lockstep
#SBATCH --nodes=2 --ntasks-per-node=2 --cpus-per-task=8
#SBATCH --time=12:00:00
#SBATCH --requeue --open-mode=append
# two minutes before the time ends every rank gets SIGTERM: they save one checkpoint, and exit with status 143
#SBATCH --signal=TERM@120
# add your partition and account, --gpus-per-node=2 if there are GPUs, and here what activates your environment

export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"  # srun does not take it from sbatch
srun python train.py strategy=ddp devices=2 num_nodes=2 threads=8 resume=true hydra.run.dir="logs/slurm/$SLURM_JOB_ID"
status=$?
if [ "$status" -eq 143 ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$status"
