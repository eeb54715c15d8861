// Four values of the row that products multiply at once, as `Input` in lower.rs makes them; a norm is over the whole row, and its
// weight as long as that.
#include "kernels/functions.wgsl"

#if BEFORE
fn before_each(v: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(
        BEFORE_FN(v.x, p.before_c),
        BEFORE_FN(v.y, p.before_c),
        BEFORE_FN(v.z, p.before_c),
        BEFORE_FN(v.w, p.before_c),
    );
}
#endif
#if AFTER
fn after_each(v: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(AFTER_FN(v.x, p.after_c), AFTER_FN(v.y, p.after_c), AFTER_FN(v.z, p.after_c), AFTER_FN(v.w, p.after_c));
}
#endif

fn stored_quad(i: u32) -> vec4<f32> {
#if B_JOINED
    if 4u * i >= JOINED_AT {
        return joined[(JOINED_OFFSET + 4u * i - JOINED_AT) / 4u];
    }
#endif
    return x[p.x_offset / 4u + i];
}

fn gated_quad(i: u32) -> vec4<f32> {
    let v = stored_quad(i);
#if BEFORE == of
    return before_each(v);
#elif BEFORE == by
    return before_each(p.before_c * before[p.before_offset / 4u + i]) * v;
#else
    return v;
#endif
}

fn finish_quad(i: u32, v: vec4<f32>, factor: f32) -> vec4<f32> {
    var y = v * factor;
#if NORM_WEIGHT
    y *= norm_weight[i];
#endif
#if AFTER == of
    y = after_each(y);
#elif AFTER == by
    y *= after_each(p.after_c * after[p.after_offset / 4u + i]);
#endif
    return y * p.scale;
}
