// Answers are kept for as long as somebody looks at them, and asked for again after a change.
import { type DefaultedQueryObserverOptions, QueryClient, QueryObserver } from "@tanstack/query-core";
import { useEffect, useState } from "preact/hooks";
import { type Fault, get, type Request } from "./api";

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
  }) as DefaultedQueryObserverOptions<T, Fault>;
  options._optimisticResults = "optimistic";
  const [observer] = useState(() => new QueryObserver<T, Fault>(client, options));
  const [, redraw] = useState({});
  useEffect(() => observer.subscribe(() => redraw({})), [observer]);
  useEffect(() => observer.setOptions(options), [request?.key]);
  const { data, error, isLoading } = observer.getOptimisticResult(options);
  return { data, error: error ?? undefined, loading: isLoading };
}

/** changed says that something was written: whatever is shown is asked for again. */
export const changed = () => client.invalidateQueries();

/** outdated says the same, and leaves it to the next view to ask. */
export const outdated = () => void client.invalidateQueries({ refetchType: "none" });

/** ask returns an answer that may be kept, without a component. */
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

/** organizations are the first of those that the caller sees, by name. */
export const organizations = get("/iam/v2beta1/groups", {
  query: { "uidp.in_root": true, page_size: 20, order_by: "name" },
});

/** useMayAnywhere reports whether the caller holds a capability in a group, or in one of the first organizations. */
export function useMayAnywhere(capability: string, group = ""): boolean {
  const may = useMay();
  const { data } = useQuery(organizations);
  return (data?.groups ?? []).some((g) => may(capability, g.uid ?? "")) || (group !== "" && may(capability, group));
}
