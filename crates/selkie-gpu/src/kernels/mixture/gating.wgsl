// What happens between an expert's products, with its biases. The including kernel has in its parameters d_ff, gate_bias and
// up_bias (where in `small` they start), alpha and limit.
#include "kernels/functions.wgsl"

fn gate_with_bias(e: u32, i: u32, sum: f32) -> f32 {
#if BIASES
    return sum + small[p.gate_bias + e * p.d_ff + i];
#else
    return sum;
#endif
}

fn up_with_bias(e: u32, i: u32, sum: f32) -> f32 {
#if BIASES
    return sum + small[p.up_bias + e * p.d_ff + i];
#else
    return sum;
#endif
}

fn gating(gate: f32, up: f32) -> f32 {
#if CLAMPED
    let g = min(gate, p.limit);
    return (clamp(up, -p.limit, p.limit) + 1.0) * g * sigmoid(p.alpha * g);
#else
    return GATE_FN(gate, 0.0) * up;
#endif
}
