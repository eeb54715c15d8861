// The results of attention/token.wgsl, whose parts are joined on the way where there are several: see attention/combine.wgsl.
fn joined(head: u32, quad: u32) -> vec4<f32> {
    var sum = vec4<f32>();
    let stride = (p.cols + 3u) / 4u * 4u + 2u;
    if step.past < SPLIT {
        for (var j = 0u; j < 4u; j++) {
            if 4u * quad + j < p.cols {
                sum[j] = x[p.x_offset + head * p.cols + 4u * quad + j];
            }
        }
        return sum;
    }
    if 4u * quad >= p.cols {
        return sum;
    }
    let splits = step.past / SPLIT + 1u;
    var largest = -1e30;
    for (var s = 0u; s < splits; s++) {
        largest = max(largest, parts[(s * p.n_heads + head + 1u) * stride - 2u]);
    }
    // Channels behind the last are zeros in parts.
    var whole = 0.0;
    for (var s = 0u; s < splits; s++) {
        let at = (s * p.n_heads + head) * stride;
        let factor = exp(parts[at + stride - 2u] - largest);
        whole += factor * parts[at + stride - 1u];
        for (var j = 0u; j < 4u; j++) {
            sum[j] += factor * parts[at + 4u * quad + j];
        }
    }
    return sum / whole;
}
