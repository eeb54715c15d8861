// A, D and the states of Mamba-1's recurrence in quads of a channel's d_state values, the last filled up with zeros; and what
// a step does to one. D stands behind A.
#if ALIGNED
@group(0) @binding(B_A) var<storage, read> a_rows: array<vec4<f32>>; // [channels, D_STATE], then [channels]
@group(1) @binding(1) var<storage, read_write> states: array<vec4<f32>>; // [channels, D_STATE]

fn a_quad(channel: u32, quad: u32) -> vec4<f32> {
    return a_rows[channel * QUADS + quad];
}

fn d_of(channel: u32) -> f32 {
    let at = p.channels * D_STATE + channel;
    return a_rows[at / 4u][at % 4u];
}

fn state_quad(channel: u32, quad: u32) -> vec4<f32> {
    return states[channel * QUADS + quad];
}

fn keep_state(channel: u32, quad: u32, h: vec4<f32>) {
    states[channel * QUADS + quad] = h;
}
#else
@group(0) @binding(B_A) var<storage, read> a_rows: array<f32>; // [channels, D_STATE], then [channels]
@group(1) @binding(1) var<storage, read_write> states: array<f32>; // [channels, D_STATE]

fn a_quad(channel: u32, quad: u32) -> vec4<f32> {
    var a = vec4<f32>();
    for (var j = 0u; j < min(4u, D_STATE - 4u * quad); j++) {
        a[j] = a_rows[channel * D_STATE + 4u * quad + j];
    }
    return a;
}

fn d_of(channel: u32) -> f32 {
    return a_rows[p.channels * D_STATE + channel];
}

fn state_quad(channel: u32, quad: u32) -> vec4<f32> {
    var h = vec4<f32>();
    for (var j = 0u; j < min(4u, D_STATE - 4u * quad); j++) {
        h[j] = states[channel * D_STATE + 4u * quad + j];
    }
    return h;
}

fn keep_state(channel: u32, quad: u32, h: vec4<f32>) {
    for (var j = 0u; j < min(4u, D_STATE - 4u * quad); j++) {
        states[channel * D_STATE + 4u * quad + j] = h[j];
    }
}
#endif

// What b * x is multiplied by.
fn input_factor(size: f32, a: vec4<f32>) -> vec4<f32> {
#if ZERO_ORDER_HOLD
    // (e^z - 1) / a with z = size * a; near zero a series, since the difference cancels there.
    let z = size * a;
    let far = (exp(z) - 1.0) / min(z, vec4<f32>(-0.4));
    let near = 1.0 + z * (0.5 + z * (1.0 / 6.0 + z * (1.0 / 24.0 + z * (1.0 / 120.0 + z * (1.0 / 720.0 + z / 5040.0)))));
    return size * select(far, near, z > vec4<f32>(-0.4));
#else
    return vec4<f32>(size);
#endif
}

fn next_state(h: vec4<f32>, size: f32, a: vec4<f32>, bx: vec4<f32>) -> vec4<f32> {
    return exp(size * a) * h + input_factor(size, a) * bx;
}
