// Answers are cached while a component shows them, and requested again after a change.
import { type DefaultedQueryObserverOptions, QueryClient, QueryObserver } from "@tanstack/query-core";
import { useEffect, useState } from "preact/hooks";
import { Fault, get, type Request } from "./api";

const client = new QueryClient({
  defaultOptions: {
    queries: { retry: false, staleTime: 5_000, gcTime: 60_000, networkMode: "always", refetchOnReconnect: false },
  },
});
client.mount();

export interface Result<T> {
  data?: T;
  error?: Fault;
  loading: boolean; // there is nothing to show yet
}

/** useQuery returns the answer to a request, or nothing while the request is null. */
export function useQuery<T>(request: Request<T> | null): Result<T> {
  const options = client.defaultQueryOptions({
    queryKey: [request?.key ?? ""],
    queryFn: ({ signal }: { signal: AbortSignal }) => request!.send(signal),
    enabled: request !== null,
    refetchInterval: ({ state }) => (state.error instanceof Fault && state.error.waiting ? 2_000 : false),
  }) as DefaultedQueryObserverOptions<T, Fault>;
  options._optimisticResults = "optimistic";
  const [observer] = useState(() => new QueryObserver<T, Fault>(client, options));
  const [, redraw] = useState({});
  useEffect(() => observer.subscribe(() => redraw({})), [observer]);
  useEffect(() => observer.setOptions(options), [request?.key]);
  const { data, error, isLoading } = observer.getOptimisticResult(options);
  return { data, error: error ?? undefined, loading: isLoading };
}

/** changed reports a write: everything that is shown is requested again. */
export const changed = () => client.invalidateQueries();

/** outdated reports a write, too, but only the next view requests its data again. */
export const outdated = () => void client.invalidateQueries({ refetchType: "none" });

/** ask returns an answer, perhaps from the cache, outside a component. */
export const ask = <T>(request: Request<T>) =>
  client.fetchQuery({ queryKey: [request.key], queryFn: ({ signal }) => request.send(signal), staleTime: 60_000 });

export const whoami = get("/auth/v1/ok", {});

/**
 * useMay returns a function that reports whether the caller holds a capability at a place. It
 * decides which controls are shown; the server decides what is done.
 */
export function useMay(): (capability: string, place: string) => boolean {
  const { data } = useQuery(whoami);
  return (capability, place) =>
    (data?.capabilities ?? []).some((held) => {
      const group = held.group?.id ?? "-";
      if (place !== group && !place.startsWith(`${group}/`)) return false;
      const narrowed = held.capabilities ?? [];
      return (
        (held.role?.capabilities ?? []).includes(capability) && (narrowed.length === 0 || narrowed.includes(capability))
      );
    });
}

/** organizations are the first organizations that the caller sees, by name. */
export const organizations = get("/iam/v2beta1/groups", {
  query: { "uidp.in_root": true, page_size: 20, order_by: "name" },
});

/** useMayAnywhere reports whether the caller holds a capability in any group. */
export function useMayAnywhere(capability: string): boolean {
  const held = useQuery(whoami).data?.capabilities ?? [];
  const may = useMay();
  return held.some((h) => may(capability, h.group?.id ?? "-"));
}
