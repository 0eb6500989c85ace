package iam

import (
	"cmp"
	"maps"
	"net/url"
	"strings"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/internal/access/workload"
)

// extras returns the parts of presets that only the command has, by platform.
func extras() map[string]preset {
	const create = "  holdfast iam identities create "
	return map[string]preset{
		"github": {
			example: create + "github --repo acme/web --branch main --parent acme/platform --role viewer\n" +
				create + "github release --repo acme/web --environment production --owner-id 1 --repo-id 2",
			dev: "--repo acme/web --ref main", issuer: githubIssuer, claims: githubClaims,
			use: "workflow, below its name and on", snippet: githubJob,
		},
		"gitlab": {
			example: create + "gitlab --project acme/web --branch main --parent acme/platform --role viewer\n" +
				create + "gitlab deploy --project acme/web --environment production --protected",
			dev: "--project acme/web --branch main", issuer: gitlabIssuer, claims: gitlabClaims,
			use: ".gitlab-ci.yml", snippet: gitlabJob,
		},
		"buildkite": {
			example: create + "buildkite --org acme --pipeline web --branch main --parent acme/platform --role viewer",
			dev:     "--org acme --pipeline web --branch main", claims: buildkiteClaims,
		},
		"kubernetes": {
			example: create + "kubernetes --issuer https://oidc.example.com/cluster-1 \\\n" +
				"    --namespace shop --service-account web --parent acme/platform --role viewer\n" +
				"  kubectl get --raw /openid/v1/jwks > keys.json   # of a cluster that the server cannot reach\n" +
				create + "kubernetes --issuer https://kubernetes.default.svc.cluster.local \\\n" +
				"    --issuer-keys-file keys.json --namespace shop --service-account web",
			dev: "--namespace shop --service-account web", claims: kubernetesClaims,
		},
	}
}

// Jobs that sign docker in to the registry with the token of the job. They need nothing but what the machines of the
// platforms have.
const (
	githubJob = `permissions:
  contents: read
  id-token: write
jobs:
  holdfast:
    runs-on: ubuntu-latest
    steps:
      - run: |
          curl -sSf -H "Authorization: Bearer $ACTIONS_ID_TOKEN_REQUEST_TOKEN" \
            "$ACTIONS_ID_TOKEN_REQUEST_URL&audience=$AUDIENCE" | jq -r .value |
            docker login --username $UID --password-stdin $REGISTRY`

	gitlabJob = `holdfast:
  image: docker
  services: ["docker:dind"]
  id_tokens:
    HOLDFAST_ID_TOKEN:
      aud: $ISSUER
  script:
    - printf %s "$HOLDFAST_ID_TOKEN" | docker login --username $UID --password-stdin $REGISTRY`
)

// githubIssuer returns the issuer of a GitHub Enterprise server: a self-hosted server, or
// one that GitHub runs at a subdomain of ghe.com.
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

func gitlabIssuer(server string) (string, error) {
	if u, err := url.Parse(server); err != nil || u.Scheme != "https" || u.Host == "" {
		return "", problem.Usage("--server: %q is not an address like https://gitlab.example.com", server)
	}
	return server, nil
}

func githubClaims(p workload.Platform, j job) map[string]any {
	context := p.ContextOf(j)
	owner, repo, _ := strings.Cut(j["repo"], "/")
	ref, isRef := strings.CutPrefix(context, "ref:")
	if !isRef {
		ref = "refs/heads/main"
	}
	claims := map[string]any{"repository": j["repo"], "repository_owner": owner, "ref": ref, "ref_type": "branch"}
	if strings.HasPrefix(ref, "refs/tags/") {
		claims["ref_type"] = "tag"
	}
	if j["pull-request"] != "" {
		ref = "refs/pull/1/merge"
		maps.Copy(claims,
			map[string]any{"event_name": "pull_request", "ref": ref, "head_ref": "change", "base_ref": "main"})
	}
	if j["environment"] != "" {
		claims["environment"] = j["environment"]
	}
	workflow := j["repo"] + "/.github/workflows/build.yml@" + ref
	claims["workflow_ref"], claims["job_workflow_ref"] = workflow, workflow
	claims["sub"] = "repo:" + j["repo"] + ":" + context
	// The newer form of the subject contains IDs. The defaults are the IDs of the test
	// issuer.
	if j["owner-id"]+j["repo-id"] != "" {
		ownerID, repoID := cmp.Or(j["owner-id"], "2001"), cmp.Or(j["repo-id"], "1001")
		claims["repository_owner_id"], claims["repository_id"] = ownerID, repoID
		claims["sub"] = "repo:" + owner + "@" + ownerID + "/" + repo + "@" + repoID + ":" + context
	}
	return claims
}

func gitlabClaims(p workload.Platform, j job) map[string]any {
	kind, path := "branch", "refs/heads/"
	switch {
	case j["tag"] != "":
		kind, path = "tag", "refs/tags/"
	case j["branch"] == "":
		j["branch"] = "main"
	}
	ref := cmp.Or(j["branch"], j["tag"])
	claims := map[string]any{
		"sub": p.Rule(j).Subject, "project_path": j["project"],
		"namespace_path": j["project"][:strings.LastIndexByte(j["project"], '/')],
		"ref":            ref, "ref_type": kind, "ref_path": path + ref,
		"ref_protected": cmp.Or(j["protected"], "false"),
	}
	if j["environment"] != "" {
		claims["environment"] = j["environment"]
	}
	if j["project-id"] != "" {
		claims["project_id"] = j["project-id"]
	}
	return claims
}

func buildkiteClaims(p workload.Platform, j job) map[string]any {
	const commit = "0123456789abcdef0123456789abcdef01234567"
	return map[string]any{
		"sub": "organization:" + j["org"] + ":pipeline:" + j["pipeline"] + ":ref:" + p.ContextOf(j) +
			":commit:" + commit + ":step:" + j["step"],
		"organization_slug": j["org"], "pipeline_slug": j["pipeline"], "build_branch": cmp.Or(j["branch"], j["tag"]),
		"build_tag": j["tag"], "build_commit": commit, "step_key": j["step"],
	}
}

func kubernetesClaims(p workload.Platform, j job) map[string]any {
	about := map[string]any{"namespace": j["namespace"], "serviceaccount": map[string]any{"name": j["service-account"]}}
	return map[string]any{"sub": p.Rule(j).Subject, "kubernetes.io": about}
}
