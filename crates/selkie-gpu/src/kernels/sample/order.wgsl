// Logits by their bits, so that nothing is asked of infinities and what is no number.

// Grows with the logit; 0 for what is never chosen.
fn order(bits: u32) -> u32 {
    let magnitude = bits & 0x7fffffffu;
    if magnitude > 0x7f800000u || bits == 0xff800000u {
        return 0u;
    }
    if magnitude == 0u {
        return 0x80000000u;
    }
    return select(bits | 0x80000000u, ~bits, bits != magnitude);
}

// The bits of an order that is not 0.
fn logit_bits(order: u32) -> u32 {
    return select(~order, order & 0x7fffffffu, order >= 0x80000000u);
}
