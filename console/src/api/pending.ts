// Work that waits for the caller.
import { get } from "./api";
import { parentOf } from "./names";
import { useMay, useMayAnywhere, useQuery, whoami } from "./query";

const latest = get("/access/v1/requests", { query: { page_size: 51, order_by: "create_time desc" } });

/** failedDeliveries are the newest events that were given up. */
export const failedDeliveries = get("/deliveries/v1/deliveries", { query: { page_size: 5 } });

/** useApprovals returns the newest requests for roles that the caller may decide. */
export function useApprovals() {
  const may = useMay(),
    anywhere = useMayAnywhere("role_bindings.create"),
    me = useQuery(whoami).data?.subject;
  return (useQuery(anywhere ? latest : null).data?.accessRequests ?? []).filter(
    (r) =>
      r.state === "ACCESS_REQUEST_STATE_PENDING" &&
      r.identityUid !== me &&
      may("role_bindings.create", parentOf(r.uid ?? "")),
  );
}

export interface Pending {
  number: number;
  one: string; // what there is one of
  more: string;
}

/** usePending returns the pending work by the name of the view that shows it. */
export function usePending(): Record<string, Pending> {
  const requests = useApprovals().length;
  const failed = Number(useQuery(useMayAnywhere("subscriptions.list") ? failedDeliveries : null).data?.totalCount ?? 0);
  return {
    ...(requests > 0 && { Access: { number: requests, one: "request to decide", more: "requests to decide" } }),
    ...(failed > 0 && { Events: { number: failed, one: "failed delivery", more: "failed deliveries" } }),
  };
}
