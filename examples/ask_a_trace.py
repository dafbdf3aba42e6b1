"""Ask a trace: where does the step's time go, which gradients wait, how fast are the flows?

    python ask_a_trace.py trace/

Every answer is a pandas DataFrame; times are seconds. `Trace.query` takes SQL over the tables events and samples.
"""

import sys

from vsketchdlc.tracer.trace import Trace

trace = Trace.open(sys.argv[1] if len(sys.argv) > 1 else "trace")
megabytes = sum(tensor.bytes for tensor in trace.meta.tensors) / 1e6
print(f"{len(trace.meta.hosts)} hosts, {len(trace.meta.tensors)} gradients, {megabytes:.0f} MB a step")

# Where does a step's time go? One row a rank and step; the first step allocates and negotiates: leave it out.
steps = trace.step_breakdown().query("step > 0")
parts = ["forward_s", "backward_s", "exposed_s", "update_s", "other_s"]
print("median of a step:", ", ".join(f"{part[:-2]} {steps[part].median():.2f} s" for part in parts))

# Which gradients wait longest between ready and done? One row a gradient, medians over ranks and steps.
tensors = trace.tensors().nlargest(3, ["total_s", "bytes"])
for tensor in tensors.itertuples():
    print(
        f"{tensor.parameter}: ready to done {tensor.total_s:.2f} s, in its bucket's allreduce {tensor.transfer_s:.2f} s"
    )

# How full are Horovod's buckets? A question nobody has asked before: SQL.
buckets = trace.query(
    """
    select step, count(*) as buckets, max(bytes) / 1e6 as largest_mb from events
    where kind = 'allreduce' and rank = 0 and step > 0 group by step order by step
    """
)
print(f"buckets a step: {buckets.buckets.median():.0f}, the largest {buckets.largest_mb.max():.1f} MB")

print(trace.verdict())
