"""What is left of a rank that does not run (simgpu/process/absent_rank.cc), where rank 0 keeps the store.

That waits until all ranks have come to it:

    rank 0   TCPStore(..., is_master=True)      waits
    rank 1   TCPStore(..., is_master=False)     comes, and ends

It ends well whatever happens: a launcher would stop the others.
"""
import os
from datetime import timedelta

from torch.distributed import TCPStore

try:
    TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), int(os.environ["WORLD_SIZE"]), False,
             timeout=timedelta(minutes=10))
except Exception as error:  # rank 0 has made none, or has ended
    print(f"gapless: rank {os.environ['RANK']}, which does not run, found no store: {error}")
