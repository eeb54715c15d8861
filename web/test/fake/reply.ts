/** Text with everything that a page has to show. */
export function reply(prompt: string, seed: number): string {
  const question = prompt.split('<user>').at(-1)?.split('\n')[0]?.trim() ?? '';
  const greeting = ['Certainly.', 'Here you are.', 'With pleasure.'][seed % 3] ?? '';
  return `${greeting} You wrote: *${question}*.

## What this is

There is **no model** behind this text; it shows what a page has to cope with:

1. a list with \`code\` in it,
2. a [link](https://example.com/ "a title"),
3. and <b>HTML</b> that must stay text: <img src=x onerror=alert(1)>

\`\`\`rust
fn main() {
    println!("Hello, {}!", "world");
}
\`\`\`

| layer | kind |
| --- | --- |
| 0 | mamba2 |
| 1 | attention |

> Umlauts äöü, emoji 🦭 and 漢字 arrive whole.
`;
}
