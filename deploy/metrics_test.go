package deploy_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// A rule is a recording rule or an alert of Prometheus.
type rule struct {
	Record, Alert, Expr, For string
	Labels, Annotations      map[string]string
}

type ruleFile struct {
	Groups []struct {
		Name  string
		Rules []rule
	}
}

func rules(t *testing.T) (all []rule) {
	t.Helper()
	var file ruleFile
	if err := yaml.UnmarshalStrict([]byte(read(t, "prometheus/rules.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	for _, group := range file.Groups {
		all = append(all, group.Rules...)
	}
	return all
}

// TestPromtool checks the rules with promtool of Prometheus, and runs their tests.
func TestPromtool(t *testing.T) {
	promtool, err := filepath.Abs("../bin/test/promtool")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(promtool); err != nil {
		t.Fatalf("%v; run: make prepare", err)
	}
	for _, args := range [][]string{{"check", "rules", "rules.yaml"}, {"test", "rules", "rules_test.yaml"}} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = "prometheus"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// TestAlertsAreExplained checks that each alert has a heading in the runbook, a severity,
// and a test case in which it fires.
func TestAlertsAreExplained(t *testing.T) {
	runbook, cases := read(t, "../docs/runbook.md"), read(t, "prometheus/rules_test.yaml")
	for _, r := range rules(t) {
		if r.Alert == "" {
			continue
		}
		_, anchor, _ := strings.Cut(r.Annotations["runbook_url"], "docs/runbook.md#")
		if anchor != strings.ToLower(r.Alert) || !strings.Contains(runbook, "\n## "+r.Alert+"\n") {
			t.Errorf("%s leads to %q in the runbook, which must have a heading of that name", r.Alert, anchor)
		}
		if s := r.Labels["severity"]; s != "page" && s != "ticket" {
			t.Errorf("%s has the severity %q", r.Alert, s)
		}
		if !regexp.MustCompile(`alertname: ` + r.Alert + `\n +exp_alerts:\n`).MatchString(cases) {
			t.Errorf("no case of rules_test.yaml has %s fire", r.Alert)
		}
		if r.Annotations["summary"] == "" {
			t.Errorf("%s has no summary", r.Alert)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^## (Holdfast\w+)$`).FindAllStringSubmatch(runbook, -1) {
		if !strings.Contains(read(t, "prometheus/rules.yaml"), "alert: "+m[1]+"\n") {
			t.Errorf("the runbook explains %s, which is no alert", m[1])
		}
	}
}

// exported returns the names of the series that a new server exports after one
// call and one request to the registry.
func exported(t *testing.T) map[string]bool {
	t.Helper()
	s := start(t, environ(local(t)))
	s.get("http://" + s.address + "/iam/v2beta1/groups")
	s.get("http://" + s.address + "/v2/")
	_, text := s.get("http://" + s.metrics + "/metrics")
	names := map[string]bool{"up": true} // Prometheus itself adds the series up
	// These metrics exist only with PostgreSQL or TLS. Tests that use these check the
	// metrics.
	for _, elsewhere := range []string{
		"holdfast_replica_heard_seconds", "holdfast_replica_lag_revisions",
		"holdfast_tls_certificate_expiry_timestamp_seconds",
	} {
		names[elsewhere] = true
	}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\w+) (\w+)$`).FindAllStringSubmatch(text, -1) {
		switch m[2] {
		case "histogram", "summary":
			names[m[1]+"_count"], names[m[1]+"_sum"], names[m[1]+"_bucket"] = true, true, m[2] == "histogram"
		default:
			names[m[1]] = true
		}
	}
	return names
}

// A dashboard has the fields of Grafana's format that the tests need.
type dashboard struct {
	UID, Title string
	Templating struct {
		List []struct{ Name, Query string }
	}
	Panels []struct {
		ID      int
		Title   string
		Type    string
		GridPos struct{ X, Y, W, H int }
		Targets []struct{ Expr string }
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	if err := json.Unmarshal([]byte(read(t, "grafana/holdfast.json")), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestMetricsExist checks that the rules and the dashboard contain valid PromQL, and that
// all metrics in them are metrics of the server.
func TestMetricsExist(t *testing.T) {
	names := exported(t)
	expressions := map[string]string{} // expressions by the place where they occur
	for _, r := range rules(t) {
		expressions["rule "+r.Alert+r.Record] = r.Expr
		if r.Record != "" {
			names[r.Record] = true
		}
	}
	variables := strings.NewReplacer("$__rate_interval", "5m")
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			expressions["panel "+p.Title+" "+target.Expr] = variables.Replace(target.Expr)
		}
	}
	p := parser.NewParser(parser.Options{})
	for where, expression := range expressions {
		e, err := p.ParseExpr(expression)
		if err != nil {
			t.Errorf("%s: %v", where, err)
			continue
		}
		parser.Inspect(e, func(node parser.Node, _ []parser.Node) error {
			if s, ok := node.(*parser.VectorSelector); ok && !names[s.Name] {
				t.Errorf("%s uses %q, which the server does not export", where, s.Name)
			}
			return nil
		})
	}
}

// TestDashboard checks that no panels overlap or share an ID, and that every panel has a
// query.
func TestDashboard(t *testing.T) {
	d := readDashboard(t)
	if d.UID != "holdfast" || len(d.Templating.List) != 2 {
		t.Errorf("uid %q, %d variables", d.UID, len(d.Templating.List))
	}
	ids, cells := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.ID == 0 {
			t.Errorf("%s has the id %d of another", p.Title, p.ID)
		}
		ids[p.ID] = true
		if (len(p.Targets) == 0) != (p.Type == "row") {
			t.Errorf("%s has %d expressions", p.Title, len(p.Targets))
		}
		g := p.GridPos
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other, taken := cells[[2]int{x, y}]; taken || x >= 24 {
					t.Fatalf("%s is over %q or the edge", p.Title, other)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
	}
}
