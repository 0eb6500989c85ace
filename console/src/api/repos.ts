// Finding repos by any part of their path. The API finds them by their exact name, so the console reads the names.
import { get, type Schema } from "./api";
import { useFirstPages } from "./pages";

export type Repo = Schema<"holdfast.registry.v2beta1.Repo">;

export const repoList = (group: string, order: string, page_token?: string, page_size = 200) =>
  get("/registry/v2beta1/repos", {
    query: { "uidp.descendants_of": group || undefined, order_by: order, page_size, page_token },
  });

/** useRepos returns the first 1,000 repos. */
export function useRepos(group: string, order: string) {
  const { pages, ...state } = useFirstPages((token) => repoList(group, order, token));
  return { ...state, repos: pages.flatMap((p) => p.repos ?? []) };
}

/** contains reports whether a path has all words of a text, in any order. Capitals do not matter. */
export const contains = (path: string, text: string): boolean =>
  text
    .toLowerCase()
    .split(/\s+/)
    .every((word) => path.toLowerCase().includes(word));
