// A cut of the cache of keys and values, positions p.cut_first up to p.cut_end: a row for each position, heads in it padded to quads; f32, or pairs of halves.
#if HALF
@group(1) @binding(1) var<storage, read_write> keys: array<vec2<u32>>; // [positions, n_kv_heads, K_QUADS]
@group(1) @binding(2) var<storage, read_write> values: array<vec2<u32>>; // [positions, n_kv_heads, V_QUADS]

fn unpack_quad(q: vec2<u32>) -> vec4<f32> {
    return vec4<f32>(unpack2x16float(q.x), unpack2x16float(q.y));
}

fn pack_quad(v: vec4<f32>) -> vec2<u32> {
    return vec2<u32>(pack2x16float(v.xy), pack2x16float(v.zw));
}
#else
@group(1) @binding(1) var<storage, read_write> keys: array<vec4<f32>>; // [positions, n_kv_heads, K_QUADS]
@group(1) @binding(2) var<storage, read_write> values: array<vec4<f32>>; // [positions, n_kv_heads, V_QUADS]

fn unpack_quad(q: vec4<f32>) -> vec4<f32> {
    return q;
}

fn pack_quad(v: vec4<f32>) -> vec4<f32> {
    return v;
}
#endif

fn key_quad(position: u32, kv_head: u32, i: u32) -> vec4<f32> {
    return unpack_quad(keys[((position - p.cut_first) * N_KV_HEADS + kv_head) * K_QUADS + i]);
}

fn value_quad(position: u32, kv_head: u32, i: u32) -> vec4<f32> {
    return unpack_quad(values[((position - p.cut_first) * N_KV_HEADS + kv_head) * V_QUADS + i]);
}
