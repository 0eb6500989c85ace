// Every view is one line: its path, its name in the navigation, and its file.
import type { FunctionComponent } from "preact";

// A View's component gets the values of the braces in its path.
// biome-ignore lint/suspicious/noExplicitAny: the properties differ from view to view.
export type Component = FunctionComponent<any>;

export interface View {
  path: string;
  name?: string; // in the navigation
  href?: string; // the page that the navigation opens, if it is not part of the console
  operators?: boolean; // only operators see it in the navigation
  under?: string; // the name that the navigation marks
  load: () => Promise<{ default: Component }>;
}

export const views: View[] = [
  { path: "/", name: "Home", load: () => import("./areas/home/home") },
  { path: "/search", name: "Search", load: () => import("./areas/home/search") },
  { path: "/tree", name: "Tree", load: () => import("./areas/access/tree") },
  { path: "/access", name: "Access", load: () => import("./areas/access/access") },
  { path: "/people", name: "People", load: () => import("./areas/people/people") },
  { path: "/workloads", name: "Workloads", load: () => import("./areas/workloads/workloads") },
  { path: "/sign-in", name: "Sign-in", load: () => import("./areas/signin/signin") },
  { path: "/repos", name: "Repos", load: () => import("./areas/registry/repos") },
  { path: "/vulnerabilities", name: "Vulnerabilities", load: () => import("./areas/vulnerabilities/vulnerabilities") },
  { path: "/audit", name: "Audit", load: () => import("./areas/events/audit") },
  { path: "/events", name: "Events", load: () => import("./areas/events/events") },
  { path: "/account", name: "Account", href: "/account", load: () => import("./areas/people/account") },
  { path: "/operator", name: "Operator", operators: true, load: () => import("./areas/operator/operator") },
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
