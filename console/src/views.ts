// Every view is one line: its path, its name in the navigation, and its file.
import type { FunctionComponent } from "preact";
import type { IconName } from "./ui/icon";

// A View's component gets the values of the braces in its path.
// biome-ignore lint/suspicious/noExplicitAny: the properties differ from view to view.
export type Component = FunctionComponent<any>;

export interface View {
  path: string;
  name?: string; // in the navigation
  group?: string; // the part of the navigation; if absent, the first
  icon?: IconName;
  href?: string; // the page that the navigation opens, if it is not part of the console
  operators?: boolean; // only operators see it in the navigation
  under?: string; // the name that the navigation marks
  load: () => Promise<{ default: Component }>;
}

export const views: View[] = [
  { path: "/", name: "Home", icon: "home", load: () => import("./areas/home/home") },
  { path: "/search", name: "Search", icon: "search", load: () => import("./areas/home/search") },
  { path: "/tree", name: "Tree", group: "Organization", icon: "tree", load: () => import("./areas/access/tree") },
  { path: "/access", name: "Access", group: "Organization", icon: "key", load: () => import("./areas/access/access") },
  {
    path: "/people",
    name: "People",
    group: "Organization",
    icon: "people",
    load: () => import("./areas/people/people"),
  },
  {
    path: "/workloads",
    name: "Workloads",
    group: "Organization",
    icon: "chip",
    load: () => import("./areas/workloads/workloads"),
  },
  {
    path: "/sign-in",
    name: "Sign-in",
    group: "Organization",
    icon: "door",
    load: () => import("./areas/signin/signin"),
  },
  { path: "/repos", name: "Repos", group: "Registry", icon: "box", load: () => import("./areas/registry/repos") },
  {
    path: "/vulnerabilities",
    name: "Vulnerabilities",
    group: "Registry",
    icon: "shield",
    load: () => import("./areas/vulnerabilities/vulnerabilities"),
  },
  { path: "/audit", name: "Audit", group: "Activity", icon: "clock", load: () => import("./areas/events/audit") },
  { path: "/events", name: "Events", group: "Activity", icon: "bolt", load: () => import("./areas/events/events") },
  {
    path: "/account",
    name: "Account",
    group: "You",
    icon: "person",
    href: "/account",
    load: () => import("./areas/people/account"),
  },
  {
    path: "/operator",
    name: "Operator",
    group: "You",
    icon: "server",
    operators: true,
    load: () => import("./areas/operator/operator"),
  },
  { path: "/confirmed", load: () => import("./areas/people/confirmed") },
  { path: "/groups/{uid}", under: "Tree", load: () => import("./areas/access/group") },
  { path: "/people/{uid}", under: "People", load: () => import("./areas/people/person") },
  { path: "/workloads/new", under: "Workloads", load: () => import("./areas/workloads/enroll") },
  { path: "/workloads/{uid}", under: "Workloads", load: () => import("./areas/workloads/workload") },
  { path: "/sign-in/new", under: "Sign-in", load: () => import("./areas/signin/connect") },
  { path: "/sign-in/{uid}", under: "Sign-in", load: () => import("./areas/signin/provider") },
  { path: "/repos/{uid}", under: "Repos", load: () => import("./areas/registry/repo") },
  { path: "/repos/{uid}/images/{reference}", under: "Repos", load: () => import("./areas/registry/image") },
  { path: "/advisories/{id}", under: "Vulnerabilities", load: () => import("./areas/vulnerabilities/advisory") },
];
