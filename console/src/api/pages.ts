// The first pages of a list, for views that put rows together or search in them.
import type { Request } from "./api";
import { useQuery } from "./query";

/**
 * useFirstPages returns the first five pages of a list. complete reports whether these are all. A page that is not
 * needed is not requested.
 */
export function useFirstPages<T extends { nextPageToken?: string }>(page: (token?: string) => Request<T> | null) {
  const first = useQuery(page());
  const after = (before: typeof first) => useQuery(before.data?.nextPageToken ? page(before.data.nextPageToken) : null);
  const second = after(first),
    third = after(second),
    fourth = after(third),
    all = [first, second, third, fourth, after(fourth)];
  const pages = all.map((p) => p.data).filter((p) => p !== undefined);
  const loading = all.some((p) => p.loading);
  return { pages, loading, complete: !loading && !pages.at(-1)?.nextPageToken, error: all.find((p) => p.error)?.error };
}
