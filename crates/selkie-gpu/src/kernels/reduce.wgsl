// Values of a workgroup's invocations brought together, the same for all. The including kernel declares THREADS, a power of two,
// and `partial` [THREADS] in workgroup memory, which nobody reads any more.
fn sum_of_all(thread: u32, value: f32) -> f32 {
#if SUBGROUP
    let own = subgroupAdd(value);
    if thread % SUBGROUP == 0u {
        partial[thread / SUBGROUP] = own;
    }
    workgroupBarrier();
    var sum = 0.0;
    for (var i = 0u; i < THREADS / SUBGROUP; i++) {
        sum += partial[i];
    }
    return sum;
#else
    partial[thread] = value;
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half >>= 1u) {
        if thread < half {
            partial[thread] += partial[thread + half];
        }
        workgroupBarrier();
    }
    return partial[0];
#endif
}

fn max_of_all(thread: u32, value: f32) -> f32 {
#if SUBGROUP
    let own = subgroupMax(value);
    if thread % SUBGROUP == 0u {
        partial[thread / SUBGROUP] = own;
    }
    workgroupBarrier();
    var most = partial[0];
    for (var i = 1u; i < THREADS / SUBGROUP; i++) {
        most = max(most, partial[i]);
    }
    return most;
#else
    partial[thread] = value;
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half >>= 1u) {
        if thread < half {
            partial[thread] = max(partial[thread], partial[thread + half]);
        }
        workgroupBarrier();
    }
    return partial[0];
#endif
}
