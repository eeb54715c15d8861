// What a convolution makes of sums in some of the matrix's rows, its channels: the one who has a channel's sum moves its window on.
@group(0) @binding(B_CONV) var<storage, read> conv: array<f32>; // [channels, TAPS], biases [channels], biases of the rows
@group(1) @binding(1) var<storage, read_write> window: array<f32>; // [TAPS - 1, channels], oldest first

fn convolved(row: u32, sum: f32) -> f32 {
    // Other rows are no channels: those before the first wrap around.
    let channel = row - p.conv_first;
    if channel >= p.conv_channels {
        return sum;
    }
    var y = conv[p.conv_channels * TAPS + channel] + conv[channel * TAPS + TAPS - 1u] * sum;
    for (var k = 0u; k < TAPS - 1u; k++) {
        let at = k * p.conv_channels + channel;
        let before = window[at];
        y += conv[channel * TAPS + k] * before;
        if step.done == 0u && k > 0u {
            window[at - p.conv_channels] = before;
        }
    }
    if step.done == 0u {
        window[(TAPS - 2u) * p.conv_channels + channel] = sum;
    }
    return select(y, f_silu(y, 0.0), p.conv_silu != 0u);
}
