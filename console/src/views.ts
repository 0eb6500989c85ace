// Every view is one line: where it is, what the navigation calls it, and its file.
import type { FunctionComponent } from "preact";

// A View's component gets what stands in the braces of its path.
export type Component = FunctionComponent<any>;

export interface View {
  path: string;
  name?: string; // in the navigation
  operators?: boolean; // others do not see it there
  under?: string; // the name that the navigation marks
  load: () => Promise<{ default: Component }>;
}

export const views: View[] = [
  { path: "/", name: "Home", load: () => import("./views/home") },
  { path: "/search", name: "Search", load: () => import("./views/search") },
  { path: "/tree", name: "Tree", load: () => import("./views/tree") },
  { path: "/access", name: "Access", load: () => import("./views/access") },
  { path: "/people", name: "People", load: () => import("./views/people") },
  { path: "/workloads", name: "Workloads", load: () => import("./views/workloads") },
  { path: "/sign-in", name: "Sign-in", load: () => import("./views/signin") },
  { path: "/repos", name: "Repos", load: () => import("./views/repos") },
  { path: "/vulnerabilities", name: "Vulnerabilities", load: () => import("./views/vulnerabilities") },
  { path: "/audit", name: "Audit", load: () => import("./views/audit") },
  { path: "/events", name: "Events", load: () => import("./views/events") },
  { path: "/account", name: "Account", load: () => import("./views/account") },
  { path: "/operator", name: "Operator", operators: true, load: () => import("./views/operator") },
  { path: "/confirmed", load: () => import("./views/confirmed") },
  { path: "/groups/{uid}", under: "Tree", load: () => import("./views/group") },
  { path: "/people/{uid}", under: "People", load: () => import("./views/person") },
  { path: "/workloads/new", under: "Workloads", load: () => import("./views/enroll") },
  { path: "/workloads/{uid}", under: "Workloads", load: () => import("./views/workload") },
  { path: "/sign-in/new", under: "Sign-in", load: () => import("./views/connect") },
  { path: "/sign-in/{uid}", under: "Sign-in", load: () => import("./views/provider") },
  { path: "/repos/{uid}", under: "Repos", load: () => import("./views/repo") },
  { path: "/repos/{uid}/images/{reference}", under: "Repos", load: () => import("./views/image") },
  { path: "/advisories/{id}", under: "Vulnerabilities", load: () => import("./views/advisory") },
];
