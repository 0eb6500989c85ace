package iam

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

// presetOf returns the preset of a platform.
func presetOf(id string) preset {
	return presets()[slices.IndexFunc(presets(), func(p preset) bool { return p.ID == id })]
}

// jobOf returns the job that the flags describe.
func jobOf(t *testing.T, p preset, flags string) job {
	t.Helper()
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	p.register(f)
	if err := f.Parse(strings.Fields(flags)); err != nil {
		t.Fatal(err)
	}
	return p.job(f)
}

// TestPresetRules: the token of a job matches the rule that the flags of the job create.
// Tokens of other jobs do not match.
func TestPresetRules(t *testing.T) {
	tests := map[string]struct {
		preset       preset
		flags        string
		accepts      []string // subjects that the rule accepts
		refuses      []string
		claims       map[string]string
		wantsClaims  bool
		exactSubject string
	}{
		"GitHub, a branch": {
			preset: presetOf("github"), flags: "--repo acme/web.site --branch main",
			accepts: []string{"repo:acme/web.site:ref:refs/heads/main", "repo:acme@1/web.site@22:ref:refs/heads/main"},
			refuses: []string{
				"repo:acme/webXsite:ref:refs/heads/main", "repo:acme/web.site:ref:refs/heads/main2",
				"repo:acme@/web.site@2:ref:refs/heads/main",
				"repo:acme@1x/web.site@2:ref:refs/heads/main", "repo:Acme/web.site:ref:refs/heads/main",
				"xrepo:acme/web.site:ref:refs/heads/main",
				"repo:acme/web.site:environment:main", "repo:acme@1/evil/web.site@2:ref:refs/heads/main",
				"repo:acme/web.site:ref:refs/tags/main",
			},
		},
		"GitHub, numbers": {
			preset: presetOf("github"), flags: "--repo acme/web --tag v1 --owner-id 1 --repo-id 22",
			accepts: []string{"repo:acme@1/web@22:ref:refs/tags/v1", "repo:acme/web:ref:refs/tags/v1"},
			refuses: []string{"repo:acme@2/web@22:ref:refs/tags/v1", "repo:acme@1/web@222:ref:refs/tags/v1"},
			claims:  map[string]string{"repository_owner_id": "1", "repository_id": "22"},
		},
		"GitHub, an environment": {
			preset: presetOf("github"), flags: "--repo acme/web --environment eu:prod",
			accepts: []string{"repo:acme/web:environment:eu%3Aprod"}, refuses: []string{"repo:acme/web:environment:eu:prod"},
		},
		"GitHub, pull requests": {
			preset: presetOf("github"), flags: "--repo acme/web --pull-request", accepts: []string{"repo:acme/web:pull_request"},
		},
		"GitHub, a short reference": {
			preset: presetOf("github"), flags: "--repo acme/web --ref dev/x",
			accepts: []string{"repo:acme/web:ref:refs/heads/dev/x"},
		},
		"GitHub, a full reference": {
			preset: presetOf("github"), flags: "--repo acme/web --ref refs/tags/v1",
			accepts: []string{"repo:acme/web:ref:refs/tags/v1"},
		},
		"GitLab, a branch": {
			preset: presetOf("gitlab"), flags: "--project acme/sub/web --branch main",
			exactSubject: "project_path:acme/sub/web:ref_type:branch:ref:main",
		},
		"GitLab, a tag of a project by number": {
			preset: presetOf("gitlab"), flags: "--project acme/web --tag v1 --project-id 7",
			exactSubject: "project_path:acme/web:ref_type:tag:ref:v1",
			claims:       map[string]string{"project_id": "7"},
		},
		"GitLab, an environment": {
			preset: presetOf("gitlab"), flags: "--project acme/web --environment prod --protected",
			accepts: []string{"project_path:acme/web:ref_type:branch:ref:main", "project_path:acme/web:ref_type:tag:ref:v1"},
			refuses: []string{
				"project_path:acme/web2:ref_type:branch:ref:main", "project_path:acme/web/sub:ref_type:branch:ref:main",
			},
			claims: map[string]string{"environment": "prod", "ref_protected": "true"},
		},
		"Kubernetes": {
			preset: presetOf("kubernetes"), flags: "--namespace shop --service-account web",
			exactSubject: "system:serviceaccount:shop:web",
		},
		"Buildkite": {
			preset: presetOf("buildkite"), flags: "--org acme --pipeline web --branch main",
			accepts: []string{
				"organization:acme:pipeline:web:ref:refs/heads/main:commit:0123:step:build",
				"organization:acme:pipeline:web:ref:refs/heads/main:commit:HEAD:step:",
			},
			refuses: []string{
				"organization:acme:pipeline:web2:ref:refs/heads/main:commit:0123:step:build",
				"organization:acme:pipeline:web:ref:refs/heads/main:x:commit:0123:step:build",
			},
		},
		"Buildkite, a step": {
			preset: presetOf("buildkite"), flags: "--org acme --pipeline web --tag v1 --step release",
			accepts: []string{"organization:acme:pipeline:web:ref:refs/tags/v1:commit:0123:step:release"},
			refuses: []string{"organization:acme:pipeline:web:ref:refs/tags/v1:commit:0123:step:release2"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r, err := tt.preset.ruleOf(jobOf(t, tt.preset, tt.flags))
			if err != nil {
				t.Fatal(err)
			}
			if r.Subject != tt.exactSubject || (r.Subject == "") == (r.Pattern == "") {
				t.Errorf("subject %q and pattern %q, want subject %q", r.Subject, r.Pattern, tt.exactSubject)
			}
			fits := func(subject string) bool {
				return subject == r.Subject || (r.Pattern != "" && regexp.MustCompile(`\A(?:`+r.Pattern+`)\z`).MatchString(subject))
			}
			minted, err := tt.preset.claimsOf(jobOf(t, tt.preset, tt.flags))
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range append(tt.accepts, minted["sub"].(string)) {
				if !fits(s) {
					t.Errorf("%s does not match %s%s", s, r.Subject, r.Pattern)
				}
			}
			for _, s := range tt.refuses {
				if fits(s) {
					t.Errorf("%s matches %s", s, r.Pattern)
				}
			}
			if tt.claims == nil {
				tt.claims = map[string]string{}
			}
			if diff := cmp.Diff(tt.claims, r.Claims); diff != "" && len(tt.claims)+len(r.Claims) > 0 {
				t.Error(diff)
			}
			for claim, value := range r.Claims {
				if minted[claim] != value {
					t.Errorf("the token has %s = %v, and the rule wants %s", claim, minted[claim], value)
				}
			}
		})
	}
}

func TestPresetMistakes(t *testing.T) {
	tests := map[string]struct {
		preset preset
		flags  string
		want   string
	}{
		"no repository":     {presetOf("github"), "--branch main", "--repo is needed"},
		"half a repository": {presetOf("github"), "--repo acme --branch main", `--repo: "acme" is not like acme/web`},
		"a pattern of one":  {presetOf("github"), "--repo acme/.* --branch main", `--repo: "acme/.*" is not like acme/web`},
		"any reference": {
			presetOf("github"), "--repo acme/web",
			"exactly one of --branch, --environment, --pull-request, --ref, --tag is needed",
		},
		"two references": {presetOf("github"), "--repo acme/web --branch main --tag v1", "exactly one of"},
		"an invalid number": {
			presetOf("github"), "--repo acme/web --branch main --repo-id x", "--owner-id and --repo-id are numbers",
		},
		"any job of GitLab": {
			presetOf("gitlab"), "--project acme/web", "one or more of --branch, --tag, --environment, --protected is needed",
		},
		"a branch and a tag": {
			presetOf("gitlab"), "--project acme/web --branch a --tag b", "a job runs on a --branch or a --tag, not on both",
		},
		"a project without group": {
			presetOf("gitlab"), "--project web --branch a", `--project: "web" is not like acme/web`,
		},
		"an invalid project number": {
			presetOf("gitlab"), "--project acme/web --branch a --project-id x", "--project-id is a number",
		},
		"any service account": {presetOf("kubernetes"), "--namespace shop", "--service-account is needed"},
		"an invalid namespace": {
			presetOf("kubernetes"), "--namespace shop:web --service-account x", `--namespace: "shop:web" is not like shop`,
		},
		"any pipeline": {presetOf("buildkite"), "--branch main", "--org is needed; --pipeline is needed"},
		"any build":    {presetOf("buildkite"), "--org acme --pipeline web", "exactly one of --branch, --tag is needed"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := tt.preset.ruleOf(jobOf(t, tt.preset, tt.flags))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %s", err, tt.want)
			}
		})
	}
}

func TestGitHubServers(t *testing.T) {
	tests := map[string]struct{ server, want string }{
		"self-hosted":    {"https://github.example.com", "https://github.example.com/_services/token"},
		"run by GitHub":  {"https://acme.ghe.com", "https://token.actions.acme.ghe.com"},
		"unencrypted":    {"http://github.example.com", ""},
		"with a path":    {"https://github.example.com/acme", ""},
		"without a host": {"https://", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got, err := githubIssuer(tt.server); got != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("issuer %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

func TestPresetName(t *testing.T) {
	for text, want := range map[string]string{"github-Acme/web.site": "github-acme-web.site", "x@@y": "x-y", "a/": "a"} {
		if got := presetName(text); got != want {
			t.Errorf("name of %s = %s, want %s", text, got, want)
		}
	}
}
