// What the build fills in.
interface ImportMeta {
  readonly env: { readonly PROD: boolean };
}
