// The sum of LANES neighbours. The including kernel declares `partial` in workgroup memory, an f32 for each invocation.
fn together(thread: u32, value: f32) -> f32 {
#if SUBGROUP
    var sum = value;
    for (var over = LANES / 2u; over > 0u; over >>= 1u) {
        sum += subgroupShuffleXor(sum, over);
    }
    return sum;
#else
    workgroupBarrier();
    partial[thread] = value;
    workgroupBarrier();
    for (var half = LANES / 2u; half > 0u; half >>= 1u) {
        if thread % LANES < half {
            partial[thread] += partial[thread + half];
        }
        workgroupBarrier();
    }
    return partial[thread / LANES * LANES];
#endif
}
