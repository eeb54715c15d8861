// The one place where the page takes hold of the package.

export { Selkie, SelkieError } from '../../src/index';
export type { Hybrid, Model } from '../../src/index';
export type * from '../../src/types';
