"""What would lanes bring a network that was never run here? From the catalogue: no cluster, trace, MXNet or MPI.

    python what_if.py

The cells (`# %%`) open as a notebook in VS Code, Spyder or PyCharm.
"""

# %% The work of one step: VGG16's gradients and the published speed of one V100
from vsketchdlc.model.bottleneck import limiting, sentence
from vsketchdlc.model.catalogue import catalogue_workload
from vsketchdlc.model.choice import choose
from vsketchdlc.model.cluster import Cluster
from vsketchdlc.model.prediction import predict
from vsketchdlc.model.scenario import Scenario

work = catalogue_workload("vgg16", gpu="v100")
print(
    f"{work.name}: {len(work.tensors)} gradients, {work.gradient_bytes / 1e6:.0f} MB, batch {work.batch_per_rank}"
)

# %% Where it would run: four hosts at 25 Gbit/s, of which the cloud gives one flow 5
cluster = Cluster.star(4, cores=8, nic_bits_per_s=25e9, flow_cap_bits_per_s=5e9, latency_s=50e-6)

# %% One prediction for each number of lanes
predictions = [predict(Scenario(work, cluster, aux=aux)) for aux in range(7)]

print(f"{'lanes':>5} {'step':>7} {'90 % interval':>15} {'exposed':>8}")
for p in predictions:
    interval = f"{p.low_s:.1f} - {p.high_s:.1f} s"
    print(f"{p.aux:>5} {p.step_s:>5.1f} s {interval:>15} {p.exposed_s:>6.1f} s")

# %% What to do, and what holds the step back
choice = choose(predictions)
print(f"lanes to run with: {choice.aux}")
print(sentence(predictions, [limiting(p) for p in predictions]))

# %% The next question: would a better NIC help instead? Without lanes one flow is the limit
for nic in (10e9, 25e9, 100e9):
    other = Cluster.star(4, cores=8, nic_bits_per_s=nic, flow_cap_bits_per_s=5e9, latency_s=50e-6)
    stock, lanes = (predict(Scenario(work, other, aux=aux), intervals=False) for aux in (0, 4))
    print(f"NIC {nic / 1e9:>3.0f} Gbit/s: stock {stock.step_s:.1f} s, 4 lanes {lanes.step_s:.1f} s")

# %% A prediction is a trace like a recorded one: write it, then `vsketchdlc report predicted/`
if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        trace = predictions[choice.aux].to_trace(f"{folder}/predicted", steps=3)
        print(f"as a trace: {len(trace.events(kinds=['allreduce']))} allreduces in 3 steps")
