// A row's values as `Input` in lower.rs makes them: gate, norm, gate, scale. The including kernel declares `x`, and for what there is
// of them `joined` (with JOINED_AT, JOINED_OFFSET and JOINED_STRIDE), `before`, `after` and `norm_weight`; it has in its parameters
// x_offset, x_stride, before_offset, before_stride, after_offset, after_stride (no strides with ONE_ROW), before_c, after_c, group, eps, scale.
#include "kernels/functions.wgsl"
#if ONE_ROW
#define X_STRIDE 0u
#define BEFORE_STRIDE 0u
#define AFTER_STRIDE 0u
#else
#define X_STRIDE p.x_stride
#define BEFORE_STRIDE p.before_stride
#define AFTER_STRIDE p.after_stride
#endif

fn stored(row: u32, i: u32) -> f32 {
#if B_JOINED
    if i >= JOINED_AT {
        return joined[JOINED_OFFSET + row * JOINED_STRIDE + i - JOINED_AT];
    }
#endif
    return x[p.x_offset + row * X_STRIDE + i];
}

fn gated(row: u32, i: u32) -> f32 {
    let v = stored(row, i);
#if BEFORE == of
    return BEFORE_FN(v, p.before_c);
#elif BEFORE == by
    return BEFORE_FN(p.before_c * before[p.before_offset + row * BEFORE_STRIDE + i], 0.0) * v;
#elif BEFORE == row_by
    return BEFORE_FN(before[p.before_offset + row * BEFORE_STRIDE], p.before_c) * v;
#else
    return v;
#endif
}

// What is left to do once the group's factor is known.
fn finish(row: u32, i: u32, v: f32, factor: f32) -> f32 {
    var y = v;
#if NORM
    y *= factor;
#if NORM_WEIGHT
#if WHOLE_WEIGHT
    y *= norm_weight[i];
#else
    y *= norm_weight[i % p.group];
#endif
#endif
#endif
#if AFTER == of
    y = AFTER_FN(y, p.after_c);
#elif AFTER == by
    y *= AFTER_FN(p.after_c * after[p.after_offset + row * AFTER_STRIDE + i], 0.0);
#elif AFTER == row_by
    y *= AFTER_FN(after[p.after_offset + row * AFTER_STRIDE], p.after_c);
#endif
    return y * p.scale;
}
