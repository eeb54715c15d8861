// The largest order, the lowest id among equal ones.
var<workgroup> candidates: array<vec2<u32>, THREADS>;

fn better(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return select(a, b, b.x > a.x || (b.x == a.x && b.y < a.y));
}

fn best_of_all(thread: u32, own: vec2<u32>) -> vec2<u32> {
    candidates[thread] = own;
    workgroupBarrier();
    for (var half = THREADS / 2u; half > 0u; half >>= 1u) {
        if thread < half {
            candidates[thread] = better(candidates[thread], candidates[thread + half]);
        }
        workgroupBarrier();
    }
    return candidates[0];
}
