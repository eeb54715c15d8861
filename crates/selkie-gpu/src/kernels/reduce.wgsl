// Values of a workgroup's invocations brought together, the same for all. The including kernel declares THREADS, a power of two,
// and `partial` [THREADS] in workgroup memory.
fn sum_of_all(thread: u32, value: f32) -> f32 {
    workgroupBarrier();
    partial[thread] = value;
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half >>= 1u) {
        if thread < half {
            partial[thread] += partial[thread + half];
        }
        workgroupBarrier();
    }
    return partial[0];
}

fn max_of_all(thread: u32, value: f32) -> f32 {
    workgroupBarrier();
    partial[thread] = value;
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half >>= 1u) {
        if thread < half {
            partial[thread] = max(partial[thread], partial[thread + half]);
        }
        workgroupBarrier();
    }
    return partial[0];
}
