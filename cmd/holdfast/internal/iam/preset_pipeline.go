package iam

import (
	"cmp"
	"errors"
	"maps"
	"net/url"
	"regexp"
	"strings"

	"github.com/spf13/pflag"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
)

func github() preset {
	return preset{
		use: "github", platform: "GitHub Actions", usual: "https://token.actions.githubusercontent.com",
		example: "  holdfast iam identities create github --repo acme/web --branch main --parent acme/platform --role viewer\n" +
			"  holdfast iam identities create github release --repo acme/web --environment production --owner-id 1 --repo-id 2",
		dev:    "--repo acme/web --ref main",
		issuer: githubIssuer,
		job: func(f *pflag.FlagSet) job {
			j := &githubJob{}
			f.StringVar(&j.repo, "repo", "", "`OWNER/REPO` that the workflow is of")
			f.StringVar(&j.ref, "ref", "", "git `REF` it runs on, refs/… or a branch")
			f.StringVar(&j.branch, "branch", "", "`BRANCH` it runs on")
			f.StringVar(&j.tag, "tag", "", "`TAG` it runs on")
			f.StringVar(&j.environment, "environment", "", "`NAME` of the deployment environment the job is in")
			f.BoolVar(&j.pullRequest, "pull-request", false, "it runs for pull requests")
			f.StringVar(&j.ownerID, "owner-id", "", "number of the owner, which stays when the name changes hands (`ID`)")
			f.StringVar(&j.repoID, "repo-id", "", "number of the repository, which stays when the name changes hands (`ID`)")
			return j
		},
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

type githubJob struct {
	repo, ref, branch, tag, environment string
	pullRequest                         bool
	ownerID, repoID                     string
}

var (
	ownerAndRepo = regexp.MustCompile(`^[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+$`)
	number       = regexp.MustCompile(`^[0-9]*$`)
)

// check looks at what every use of a job needs.
func (j *githubJob) check() error {
	err := matching("repo", j.repo, ownerAndRepo, "acme/web")
	if !number.MatchString(j.ownerID) || !number.MatchString(j.repoID) {
		err = cmp.Or(err, error(problem.Usage("--owner-id and --repo-id are numbers")))
	}
	return err
}

// context is the end of a subject: what the job runs for.
func (j *githubJob) context() (string, error) {
	flag, err := one(map[string]bool{
		"ref": j.ref != "", "branch": j.branch != "", "tag": j.tag != "", "environment": j.environment != "", "pull-request": j.pullRequest,
	})
	switch flag {
	case "ref":
		return "ref:" + fullRef(j.ref), err
	case "branch":
		return "ref:refs/heads/" + j.branch, err
	case "tag":
		return "ref:refs/tags/" + j.tag, err
	case "environment":
		return "environment:" + strings.ReplaceAll(j.environment, ":", "%3A"), err // as GitHub writes it
	}
	return "pull_request", err
}

// rule covers subjects with and without numbers in them (repo:acme@1/web@2:…):
// GitHub changes from the one to the other by organization. Numbers that are
// given are told apart by claims, which both kinds of token have.
func (j *githubJob) rule() (rule, error) {
	if err := j.check(); err != nil {
		return rule{}, err
	}
	end, err := j.context()
	if err != nil {
		return rule{}, err
	}
	owner, repo, _ := strings.Cut(j.repo, "/")
	r := rule{name: "github-" + j.repo, claims: map[string]string{}}
	r.pattern = "repo:" + regexp.QuoteMeta(owner) + numbered(j.ownerID) + "/" + regexp.QuoteMeta(repo) + numbered(j.repoID) + ":" + regexp.QuoteMeta(end)
	if j.ownerID != "" {
		r.claims["repository_owner_id"] = j.ownerID
	}
	if j.repoID != "" {
		r.claims["repository_id"] = j.repoID
	}
	return r, nil
}

func numbered(id string) string { return "(@" + cmp.Or(id, "[0-9]+") + ")?" }

func (j *githubJob) claims() (map[string]any, error) {
	j.repo = cmp.Or(j.repo, "example/app")
	if j.ref+j.branch+j.tag+j.environment == "" && !j.pullRequest {
		j.branch = "main"
	}
	if err := j.check(); err != nil {
		return nil, err
	}
	end, err := j.context()
	if err != nil {
		return nil, err
	}
	owner, repo, _ := strings.Cut(j.repo, "/")
	ref, isRef := strings.CutPrefix(end, "ref:")
	if !isRef {
		ref = "refs/heads/main"
	}
	all := map[string]any{"repository": j.repo, "repository_owner": owner, "ref": ref, "ref_type": "branch"}
	if strings.HasPrefix(ref, "refs/tags/") {
		all["ref_type"] = "tag"
	}
	if j.pullRequest {
		ref = "refs/pull/1/merge"
		maps.Copy(all, map[string]any{"event_name": "pull_request", "ref": ref, "head_ref": "change", "base_ref": "main"})
	}
	if j.environment != "" {
		all["environment"] = j.environment
	}
	workflow := j.repo + "/.github/workflows/build.yml@" + ref
	all["workflow_ref"], all["job_workflow_ref"] = workflow, workflow
	all["sub"] = "repo:" + j.repo + ":" + end
	if j.ownerID+j.repoID != "" { // the newer form, with the numbers of the test issuer where none are given
		all["repository_owner_id"], all["repository_id"] = cmp.Or(j.ownerID, "2001"), cmp.Or(j.repoID, "1001")
		all["sub"] = "repo:" + owner + "@" + cmp.Or(j.ownerID, "2001") + "/" + repo + "@" + cmp.Or(j.repoID, "1001") + ":" + end
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
		job: func(f *pflag.FlagSet) job {
			j := &gitlabJob{}
			f.StringVar(&j.project, "project", "", "`PATH` of the project, with its groups")
			f.StringVar(&j.branch, "branch", "", "`BRANCH` the job runs on")
			f.StringVar(&j.tag, "tag", "", "`TAG` the job runs on")
			f.StringVar(&j.environment, "environment", "", "`NAME` of the environment the job deploys to")
			f.BoolVar(&j.protected, "protected", false, "the job runs on a protected branch or tag")
			f.StringVar(&j.projectID, "project-id", "", "number of the project, which stays when its path changes hands (`ID`)")
			return j
		},
	}
}

type gitlabJob struct {
	project, branch, tag, environment, projectID string
	protected                                    bool
}

var projectPath = regexp.MustCompile(`^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)+$`)

func (j *gitlabJob) check() error {
	if err := matching("project", j.project, projectPath, "acme/web"); err != nil {
		return err
	}
	if j.branch != "" && j.tag != "" {
		return problem.Usage("a job runs on a --branch or a --tag, not on both")
	}
	if !number.MatchString(j.projectID) {
		return problem.Usage("--project-id is a number")
	}
	return nil
}

func (j *gitlabJob) rule() (rule, error) {
	if err := j.check(); err != nil {
		return rule{}, err
	}
	r := rule{name: "gitlab-" + j.project, claims: map[string]string{}}
	switch {
	case j.branch+j.tag != "":
		r.subject = j.subject()
	case j.environment != "" || j.protected:
		r.pattern = "project_path:" + regexp.QuoteMeta(j.project) + ":ref_type:(branch|tag):ref:.+"
	default:
		return rule{}, problem.Usage("one or more of --branch, --tag, --environment, --protected is needed")
	}
	for claim, value := range map[string]string{"environment": j.environment, "project_id": j.projectID} {
		if value != "" {
			r.claims[claim] = value
		}
	}
	if j.protected {
		r.claims["ref_protected"] = "true"
	}
	return r, nil
}

func (j *gitlabJob) subject() string {
	kind := "branch"
	if j.tag != "" {
		kind = "tag"
	}
	return "project_path:" + j.project + ":ref_type:" + kind + ":ref:" + cmp.Or(j.branch, j.tag, "main")
}

func (j *gitlabJob) claims() (map[string]any, error) {
	j.project = cmp.Or(j.project, "example/app")
	if err := j.check(); err != nil {
		return nil, err
	}
	all := map[string]any{
		"sub": j.subject(), "project_path": j.project, "namespace_path": j.project[:strings.LastIndexByte(j.project, '/')],
		"ref": cmp.Or(j.branch, j.tag, "main"), "ref_type": "branch", "ref_path": "refs/heads/" + cmp.Or(j.branch, "main"),
		"ref_protected": "false",
	}
	if j.tag != "" {
		all["ref_type"], all["ref_path"] = "tag", "refs/tags/"+j.tag
	}
	if j.protected {
		all["ref_protected"] = "true"
	}
	if j.environment != "" {
		all["environment"] = j.environment
	}
	if j.projectID != "" {
		all["project_id"] = j.projectID
	}
	return all, nil
}

func buildkite() preset {
	return preset{
		use: "buildkite", platform: "Buildkite", usual: "https://agent.buildkite.com",
		example: "  holdfast iam identities create buildkite --org acme --pipeline web --branch main --parent acme/platform --role viewer",
		dev:     "--org acme --pipeline web --branch main",
		job: func(f *pflag.FlagSet) job {
			j := &buildkiteJob{}
			f.StringVar(&j.org, "org", "", "`SLUG` of the organization")
			f.StringVar(&j.pipeline, "pipeline", "", "`SLUG` of the pipeline")
			f.StringVar(&j.branch, "branch", "", "`BRANCH` it builds")
			f.StringVar(&j.tag, "tag", "", "`TAG` it builds")
			f.StringVar(&j.step, "step", "", "`KEY` of the step (any)")
			return j
		},
	}
}

type buildkiteJob struct{ org, pipeline, branch, tag, step string }

var slug = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

func (j *buildkiteJob) check() error {
	if err := errors.Join(matching("org", j.org, slug, "acme"), matching("pipeline", j.pipeline, slug, "web")); err != nil {
		return problem.Usage("%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}

// ref is the git reference of the build.
func (j *buildkiteJob) ref() (string, error) {
	flag, err := one(map[string]bool{"branch": j.branch != "", "tag": j.tag != ""})
	if flag == "tag" {
		return "refs/tags/" + j.tag, err
	}
	return "refs/heads/" + j.branch, err
}

// rule leaves the commit open, and the step unless it is given.
func (j *buildkiteJob) rule() (rule, error) {
	if err := j.check(); err != nil {
		return rule{}, err
	}
	ref, err := j.ref()
	if err != nil {
		return rule{}, err
	}
	step := ".*"
	if j.step != "" {
		step = regexp.QuoteMeta(j.step)
	}
	return rule{
		name: "buildkite-" + j.org + "-" + j.pipeline,
		pattern: "organization:" + regexp.QuoteMeta(j.org) + ":pipeline:" + regexp.QuoteMeta(j.pipeline) +
			":ref:" + regexp.QuoteMeta(ref) + ":commit:[^:]+:step:" + step,
	}, nil
}

func (j *buildkiteJob) claims() (map[string]any, error) {
	j.org, j.pipeline, j.step = cmp.Or(j.org, "example"), cmp.Or(j.pipeline, "app"), cmp.Or(j.step, "build")
	if j.branch+j.tag == "" {
		j.branch = "main"
	}
	if err := j.check(); err != nil {
		return nil, err
	}
	ref, err := j.ref()
	if err != nil {
		return nil, err
	}
	const commit = "0123456789abcdef0123456789abcdef01234567"
	return map[string]any{
		"sub":               "organization:" + j.org + ":pipeline:" + j.pipeline + ":ref:" + ref + ":commit:" + commit + ":step:" + j.step,
		"organization_slug": j.org, "pipeline_slug": j.pipeline, "build_branch": cmp.Or(j.branch, j.tag), "build_tag": j.tag,
		"build_commit": commit, "step_key": j.step,
	}, nil
}
