package iam

import (
	"cmp"
	"errors"
	"maps"
	"net/url"
	"regexp"
	"strings"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
)

func github() preset {
	return preset{
		use: "github", platform: "GitHub Actions", usual: "https://token.actions.githubusercontent.com",
		example: "  holdfast iam identities create github --repo acme/web --branch main --parent acme/platform --role viewer\n" +
			"  holdfast iam identities create github release --repo acme/web --environment production --owner-id 1 --repo-id 2",
		dev:    "--repo acme/web --ref main",
		issuer: githubIssuer,
		flags: [][2]string{
			{"repo", "`OWNER/REPO` of the workflow"},
			{"ref", "git `REF` the job runs on, refs/… or a branch"},
			{"branch", "`BRANCH` the job runs on"},
			{"tag", "`TAG` the job runs on"},
			{"environment", "`NAME` of the deployment environment of the job"},
			{"pull-request", "the job runs for pull requests"},
			{"owner-id", "numeric `ID` of the owner, which does not change with the name"},
			{"repo-id", "numeric `ID` of the repository, which does not change with the name"},
		},
		defaults: map[string]string{"repo": "example/app"},
		check:    githubCheck, rule: githubRule, claims: githubClaims,
	}
}

// githubIssuer is the issuer of a server of GitHub Enterprise: one's own, or one
// that GitHub runs at a subdomain of ghe.com.
func githubIssuer(server string) (string, error) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.Path != "" {
		return "", problem.Usage("--server: %q is not an address like https://github.example.com", server)
	}
	if strings.HasSuffix(u.Host, ".ghe.com") {
		return "https://token.actions." + u.Host, nil
	}
	return server + "/_services/token", nil
}

var (
	ownerAndRepo = regexp.MustCompile(`^[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+$`)
	number       = regexp.MustCompile(`^[0-9]*$`)
)

func githubCheck(j job) error {
	if err := matching("repo", j["repo"], ownerAndRepo, "acme/web"); err != nil {
		return err
	}
	if !number.MatchString(j["owner-id"]) || !number.MatchString(j["repo-id"]) {
		return problem.Usage("--owner-id and --repo-id are numbers")
	}
	return nil
}

// githubContext is the end of a subject: what the job runs for.
func githubContext(j job) (string, error) {
	flag, err := one(j, "branch", "environment", "pull-request", "ref", "tag")
	switch flag {
	case "ref":
		return "ref:" + fullRef(j["ref"]), err
	case "branch":
		return "ref:refs/heads/" + j["branch"], err
	case "tag":
		return "ref:refs/tags/" + j["tag"], err
	case "environment":
		return "environment:" + strings.ReplaceAll(j["environment"], ":", "%3A"), err // as GitHub writes it
	}
	return "pull_request", err
}

// githubRule covers subjects with and without numbers (repo:acme@1/web@2:…): GitHub
// changes from the one to the other by organization. Claims, which both kinds of
// token have, check the numbers that are given.
func githubRule(j job) (rule, error) {
	end, err := githubContext(j)
	if err != nil {
		return rule{}, err
	}
	owner, repo, _ := strings.Cut(j["repo"], "/")
	return rule{
		name: "github-" + j["repo"],
		pattern: "repo:" + regexp.QuoteMeta(owner) + numbered(j["owner-id"]) + "/" + regexp.QuoteMeta(repo) +
			numbered(j["repo-id"]) +
			":" + regexp.QuoteMeta(end),
		claims: map[string]string{"repository_owner_id": j["owner-id"], "repository_id": j["repo-id"]},
	}, nil
}

func numbered(id string) string { return "(@" + cmp.Or(id, "[0-9]+") + ")?" }

func githubClaims(j job) (map[string]any, error) {
	if j["ref"]+j["branch"]+j["tag"]+j["environment"]+j["pull-request"] == "" {
		j["branch"] = "main"
	}
	end, err := githubContext(j)
	if err != nil {
		return nil, err
	}
	owner, repo, _ := strings.Cut(j["repo"], "/")
	ref, isRef := strings.CutPrefix(end, "ref:")
	if !isRef {
		ref = "refs/heads/main"
	}
	all := map[string]any{"repository": j["repo"], "repository_owner": owner, "ref": ref, "ref_type": "branch"}
	if strings.HasPrefix(ref, "refs/tags/") {
		all["ref_type"] = "tag"
	}
	if j["pull-request"] != "" {
		ref = "refs/pull/1/merge"
		maps.Copy(all, map[string]any{"event_name": "pull_request", "ref": ref, "head_ref": "change", "base_ref": "main"})
	}
	if j["environment"] != "" {
		all["environment"] = j["environment"]
	}
	workflow := j["repo"] + "/.github/workflows/build.yml@" + ref
	all["workflow_ref"], all["job_workflow_ref"] = workflow, workflow
	all["sub"] = "repo:" + j["repo"] + ":" + end
	if j["owner-id"]+j["repo-id"] != "" { // the newer form, with the numbers of the test issuer where none are given
		ownerID, repoID := cmp.Or(j["owner-id"], "2001"), cmp.Or(j["repo-id"], "1001")
		all["repository_owner_id"], all["repository_id"] = ownerID, repoID
		all["sub"] = "repo:" + owner + "@" + ownerID + "/" + repo + "@" + repoID + ":" + end
	}
	return all, nil
}

func gitlab() preset {
	return preset{
		use: "gitlab", platform: "GitLab CI", usual: "https://gitlab.com",
		example: "  holdfast iam identities create gitlab --project acme/web --branch main --parent acme/platform --role viewer\n" +
			"  holdfast iam identities create gitlab deploy --project acme/web --environment production --protected",
		dev: "--project acme/web --branch main",
		issuer: func(server string) (string, error) {
			if u, err := url.Parse(server); err != nil || u.Scheme != "https" || u.Host == "" {
				return "", problem.Usage("--server: %q is not an address like https://gitlab.example.com", server)
			}
			return server, nil
		},
		flags: [][2]string{
			{"project", "`PATH` of the project, including its groups"},
			{"branch", "`BRANCH` the job runs on"},
			{"tag", "`TAG` the job runs on"},
			{"environment", "`NAME` of the environment the job deploys to"},
			{"protected", "the job runs on a protected branch or tag"},
			{"project-id", "numeric `ID` of the project, which does not change with its path"},
		},
		defaults: map[string]string{"project": "example/app"},
		check:    gitlabCheck, rule: gitlabRule, claims: gitlabClaims,
	}
}

var projectPath = regexp.MustCompile(`^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)+$`)

func gitlabCheck(j job) error {
	if err := matching("project", j["project"], projectPath, "acme/web"); err != nil {
		return err
	}
	if j["branch"] != "" && j["tag"] != "" {
		return problem.Usage("a job runs on a --branch or a --tag, not on both")
	}
	if !number.MatchString(j["project-id"]) {
		return problem.Usage("--project-id is a number")
	}
	return nil
}

func gitlabRule(j job) (rule, error) {
	r := rule{name: "gitlab-" + j["project"], claims: map[string]string{
		"environment": j["environment"], "project_id": j["project-id"], "ref_protected": j["protected"],
	}}
	switch {
	case j["branch"]+j["tag"] != "":
		r.subject = gitlabSubject(j)
	case j["environment"]+j["protected"] != "":
		r.pattern = "project_path:" + regexp.QuoteMeta(j["project"]) + ":ref_type:(branch|tag):ref:.+"
	default:
		return rule{}, problem.Usage("one or more of --branch, --tag, --environment, --protected is needed")
	}
	return r, nil
}

func gitlabSubject(j job) string {
	kind := "branch"
	if j["tag"] != "" {
		kind = "tag"
	}
	return "project_path:" + j["project"] + ":ref_type:" + kind + ":ref:" + cmp.Or(j["branch"], j["tag"], "main")
}

func gitlabClaims(j job) (map[string]any, error) {
	all := map[string]any{
		"sub": gitlabSubject(j), "project_path": j["project"],
		"namespace_path": j["project"][:strings.LastIndexByte(j["project"], '/')],
		"ref":            cmp.Or(j["branch"], j["tag"], "main"), "ref_type": "branch", "ref_path": "refs/heads/" +
			cmp.Or(j["branch"], "main"),
		"ref_protected": cmp.Or(j["protected"], "false"),
	}
	if j["tag"] != "" {
		all["ref_type"], all["ref_path"] = "tag", "refs/tags/"+j["tag"]
	}
	if j["environment"] != "" {
		all["environment"] = j["environment"]
	}
	if j["project-id"] != "" {
		all["project_id"] = j["project-id"]
	}
	return all, nil
}

func buildkite() preset {
	return preset{
		use: "buildkite", platform: "Buildkite", usual: "https://agent.buildkite.com",
		example: "  holdfast iam identities create buildkite --org acme --pipeline web --branch main --parent acme/platform --role viewer",
		dev:     "--org acme --pipeline web --branch main",
		flags: [][2]string{
			{"org", "`SLUG` of the organization"},
			{"pipeline", "`SLUG` of the pipeline"},
			{"branch", "`BRANCH` of the build"},
			{"tag", "`TAG` of the build"},
			{"step", "`KEY` of the step (default: any)"},
		},
		defaults: map[string]string{"org": "example", "pipeline": "app", "step": "build"},
		check:    buildkiteCheck, rule: buildkiteRule, claims: buildkiteClaims,
	}
}

var slug = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

func buildkiteCheck(j job) error {
	if err := errors.Join(matching("org", j["org"], slug, "acme"), matching("pipeline", j["pipeline"], slug,
		"web")); err != nil {
		return problem.Usage("%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}

// buildkiteRef is the git reference of the build.
func buildkiteRef(j job) (string, error) {
	flag, err := one(j, "branch", "tag")
	if flag == "tag" {
		return "refs/tags/" + j["tag"], err
	}
	return "refs/heads/" + j["branch"], err
}

// buildkiteRule leaves the commit open, and the step unless it is given.
func buildkiteRule(j job) (rule, error) {
	ref, err := buildkiteRef(j)
	if err != nil {
		return rule{}, err
	}
	step := ".*"
	if j["step"] != "" {
		step = regexp.QuoteMeta(j["step"])
	}
	return rule{
		name: "buildkite-" + j["org"] + "-" + j["pipeline"],
		pattern: "organization:" + regexp.QuoteMeta(j["org"]) + ":pipeline:" + regexp.QuoteMeta(j["pipeline"]) +
			":ref:" + regexp.QuoteMeta(ref) + ":commit:[^:]+:step:" + step,
	}, nil
}

func buildkiteClaims(j job) (map[string]any, error) {
	if j["branch"]+j["tag"] == "" {
		j["branch"] = "main"
	}
	ref, err := buildkiteRef(j)
	if err != nil {
		return nil, err
	}
	const commit = "0123456789abcdef0123456789abcdef01234567"
	return map[string]any{
		"sub": "organization:" + j["org"] + ":pipeline:" + j["pipeline"] + ":ref:" + ref + ":commit:" + commit +
			":step:" + j["step"],
		"organization_slug": j["org"], "pipeline_slug": j["pipeline"], "build_branch": cmp.Or(j["branch"], j["tag"]),
		"build_tag":    j["tag"],
		"build_commit": commit, "step_key": j["step"],
	}, nil
}

func kubernetes() preset {
	return preset{
		use: "kubernetes", platform: "Kubernetes",
		example: "  holdfast iam identities create kubernetes --issuer https://oidc.example.com/cluster-1 \\\n" +
			"    --namespace shop --service-account web --parent acme/platform --role viewer\n" +
			"  kubectl get --raw /openid/v1/jwks > keys.json   # of a cluster that the server cannot reach\n" +
			"  holdfast iam identities create kubernetes --issuer https://kubernetes.default.svc.cluster.local \\\n" +
			"    --issuer-keys-file keys.json --namespace shop --service-account web",
		dev: "--namespace shop --service-account web",
		flags: [][2]string{
			{"namespace", "`NAMESPACE` of the service account"},
			{"service-account", "`NAME` of the service account of the pods"},
		},
		defaults: map[string]string{"namespace": "default", "service-account": "builder"},
		check:    kubernetesCheck, rule: kubernetesRule, claims: kubernetesClaims,
	}
}

var dnsName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)

func kubernetesSubject(j job) string {
	return "system:serviceaccount:" + j["namespace"] + ":" + j["service-account"]
}

func kubernetesCheck(j job) error {
	if err := matching("namespace", j["namespace"], dnsName, "shop"); err != nil {
		return err
	}
	return matching("service-account", j["service-account"], dnsName, "web")
}

func kubernetesRule(j job) (rule, error) {
	return rule{name: "kubernetes-" + j["namespace"] + "-" + j["service-account"], subject: kubernetesSubject(j)}, nil
}

func kubernetesClaims(j job) (map[string]any, error) {
	about := map[string]any{"namespace": j["namespace"], "serviceaccount": map[string]any{"name": j["service-account"]}}
	return map[string]any{"sub": kubernetesSubject(j), "kubernetes.io": about}, nil
}
