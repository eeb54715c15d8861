// The states, a matrix for each value head: rows of K_DIM, columns of V_DIM in quads, the last filled up with zeros.
#if ALIGNED
@group(1) @binding(1) var<storage, read_write> states: array<vec4<f32>>; // [n_v_heads, K_DIM, V_DIM]

fn state_quad(head: u32, k: u32, quad: u32) -> vec4<f32> {
    return states[(head * K_DIM + k) * V_QUADS + quad];
}

fn keep_state(head: u32, k: u32, quad: u32, s: vec4<f32>) {
    states[(head * K_DIM + k) * V_QUADS + quad] = s;
}
#else
@group(1) @binding(1) var<storage, read_write> states: array<f32>; // [n_v_heads, K_DIM, V_DIM]

fn state_quad(head: u32, k: u32, quad: u32) -> vec4<f32> {
    var s = vec4<f32>();
    for (var j = 0u; j < min(4u, V_DIM - 4u * quad); j++) {
        s[j] = states[(head * K_DIM + k) * V_DIM + 4u * quad + j];
    }
    return s;
}

fn keep_state(head: u32, k: u32, quad: u32, s: vec4<f32>) {
    for (var j = 0u; j < min(4u, V_DIM - 4u * quad); j++) {
        states[(head * K_DIM + k) * V_DIM + 4u * quad + j] = s[j];
    }
}
#endif
