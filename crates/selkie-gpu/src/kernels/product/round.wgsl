// Values rounded to 8 bits in groups of 32. The including kernel declares THREADS.
#if !SUBGROUP
var<workgroup> neighbours: array<vec2<f32>, THREADS>;
#endif

// The largest of eight neighbours.
fn max_of_eight(thread: u32, value: f32) -> f32 {
#if SUBGROUP
    var most = max(value, subgroupShuffleXor(value, 1u));
    most = max(most, subgroupShuffleXor(most, 2u));
    return max(most, subgroupShuffleXor(most, 4u));
#else
    workgroupBarrier();
    neighbours[thread].x = value;
    workgroupBarrier();
    var most = 0.0;
    for (var i = 0u; i < 8u; i++) {
        most = max(most, neighbours[thread / 8u * 8u + i].x);
    }
    return most;
#endif
}

// The sum of four neighbours.
fn sum_of_four(thread: u32, value: i32) -> f32 {
#if SUBGROUP
    let sum = value + subgroupShuffleXor(value, 1u);
    return f32(sum + subgroupShuffleXor(sum, 2u));
#else
    workgroupBarrier();
    neighbours[thread].y = f32(value);
    workgroupBarrier();
    var sum = 0.0;
    for (var i = 0u; i < 4u; i++) {
        sum += neighbours[thread / 4u * 4u + i].y;
    }
    return sum;
#endif
}

struct Rounded {
    quad: u32, // four signed bytes
    scale: f32, // of the group
    sum: f32, // of sixteen neighbours' bytes, scaled
}

// A quad of a group whose eight quads are eight neighbours'. Everybody in the workgroup takes part.
fn rounded_quad(thread: u32, v: vec4<f32>) -> Rounded {
    let most = max_of_eight(thread, max(max(abs(v.x), abs(v.y)), max(abs(v.z), abs(v.w))));
    let scale = most / 127.0;
    let q = vec4<i32>(round(v * select(0.0, 127.0 / max(most, 1e-30), most > 1e-30)));
    return Rounded(pack4xI8(q), scale, scale * sum_of_four(thread, q.x + q.y + q.z + q.w));
}
