package running

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var (
	one = "sha256:" + strings.Repeat("1", 64)
	two = "sha256:" + strings.Repeat("2", 64)
)

// podsOf returns a list of pods as kubectl prints it.
func podsOf(pods ...string) string {
	return `{"apiVersion": "v1", "kind": "List", "items": [` + strings.Join(pods, ",") + `]}`
}

// podOf returns a pod of a deployment with one container.
func podOf(phase, image, id string) string {
	return fmt.Sprintf(`{"kind": "Pod", "metadata": {"namespace": "shop", "name": "web-5d4f-x",
		"labels": {"pod-template-hash": "5d4f"},
		"ownerReferences": [{"kind": "ReplicaSet", "name": "web-5d4f", "controller": true}]},
		"spec": {"containers": [{"name": "web", "image": %q}],
		"nodeSelector": {"kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64"}},
		"status": {"phase": %q, "containerStatuses": [
		{"name": "web", "image": "other", "imageID": %q, "state": {"running": {}}}]}}`, image, phase, id)
}

func TestParseWorkloads(t *testing.T) {
	web := "shop Deployment/web web app:1 %s linux/arm64 %d"
	tests := map[string]struct {
		text string
		want []string
	}{
		"two pods of a deployment": {
			podsOf(podOf("Running", "app:1", "r.io/app@"+one), podOf("Running", "app:1", "r.io/app@"+one)),
			[]string{fmt.Sprintf(web, one, 2)},
		},
		"during a rollout": {
			podsOf(podOf("Running", "app:1", "r.io/app@"+one), podOf("Running", "app:1", "r.io/app@"+two)),
			[]string{fmt.Sprintf(web, one, 1), fmt.Sprintf(web, two, 1)},
		},
		"on docker": {
			podsOf(podOf("Running", "app:1", "docker-pullable://r.io/app@"+one)), []string{fmt.Sprintf(web, one, 1)},
		},
		"with the id of the config": {podsOf(podOf("Running", "app:1", one)), []string{fmt.Sprintf(web, "-", 1)}},
		"with docker's id": {
			podsOf(podOf("Running", "app:1", "docker://"+one)), []string{fmt.Sprintf(web, "-", 1)},
		},
		"requested by digest": {
			podsOf(podOf("Pending", "app@"+two, "")),
			[]string{"shop Deployment/web web app@" + two + " " + two + " linux/arm64 1"},
		},
		"ended pods": {
			podsOf(podOf("Succeeded", "app:1", "r.io/app@"+one), podOf("Failed", "app:1", "r.io/app@"+one)), nil,
		},
		"no pods": {podsOf(), nil},
		"one pod": {podOf("Running", "app:1", "r.io/app@"+one), []string{fmt.Sprintf(web, one, 1)}},
		"an init container that has not started": {
			podsOf(`{"metadata": {"namespace": "a", "name": "p"}, "spec": {
				"initContainers": [{"name": "i", "image": "init:1"}],
				"ephemeralContainers": [{"name": "e", "image": "debug"}]},
				"status": {"initContainerStatuses": [{"name": "i", "imageID": "x@` + one + `"}]}}`),
			[]string{"a Pod/p i init:1 " + one + " - 1", "a Pod/p e debug - - 1"},
		},
		"a compose file": {
			"name: shop\nservices:\n" +
				"  web:\n    image: r.io/app:1@" + one + "\n    deploy: {replicas: 3}\n    platform: linux/amd64\n" +
				"  db:\n    image: postgres:18\n  own:\n    build: .\n  off:\n    image: x\n    scale: 0\n",
			[]string{"shop db - postgres:18 - - 1", "shop web - r.io/app:1@" + one + " " + one + " linux/amd64 3"},
		},
		"a list": {
			"# what runs\n" + one + "\n\nr.io/app@" + two + " # twice\nr.io/app@" + two + "\napp:1\n",
			[]string{"- - - - " + one + " - 1", "- - - r.io/app@" + two + " " + two + " - 2", "- - - app:1 - - 1"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Parse("", []byte(tt.text))
			if err != nil {
				t.Fatal(err)
			}
			var lines []string
			for _, e := range got {
				words := []string{
					e.GetNamespace(), e.GetWorkload(), e.GetContainer(), e.GetImage(), e.GetDigest(), e.GetPlatform(),
					fmt.Sprint(e.GetCopies()),
				}
				for i, w := range words {
					if w == "" {
						words[i] = "-"
					}
				}
				lines = append(lines, strings.Join(words, " "))
			}
			if diff := cmp.Diff(tt.want, lines, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		})
	}
	for name, text := range map[string]string{
		"deployments":    podsOf(`{"kind": "Deployment"}`),
		"an object":      `{"kind": "Node"}`,
		"half a list":    podsOf()[:20],
		"half a pod":     podsOf(podOf("Running", "app:1", ""))[:200],
		"one page":       `{"kind": "List", "metadata": {"continue": "next"}, "items": []}`,
		"half a digest":  "app:1\napp@" + one[:40],
		"no digest":      "app@",
		"half a service": "services:\n  web:\n    image: app:1\n  db:\n    ima",
		"a table":        "NAMESPACE   NAME\nshop        web-1",
		"no services":    "services:\n",
		"services twice": "services: []\n",
		"a long line":    strings.Repeat("x", 5000),
	} {
		if got, err := Parse("", []byte(text)); err == nil {
			t.Errorf("%s is read as %v", name, got)
		}
	}
}

func FuzzParseWorkloads(f *testing.F) {
	for _, text := range []string{
		podsOf(podOf("Running", "app:1", "r.io/app@"+one)), podOf("Pending", "", ""),
		"services:\n  a: {image: x, scale: 3}\n", one + "\nx # y", "{", "services: &a [*a]",
	} {
		for _, format := range append(Formats, "") {
			f.Add(format, []byte(text))
		}
	}
	f.Fuzz(func(t *testing.T, format string, text []byte) {
		all, err := Parse(format, text)
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, e := range all {
			if e.GetDigest() != "" && digestIn(e.GetDigest()) != e.GetDigest() || e.GetCopies() < 1 ||
				e.GetCopies() > maxCopies {
				t.Errorf("%q gives %v", text, e)
			}
			key := fmt.Sprintf("%q",
				[]string{e.GetNamespace(), e.GetWorkload(), e.GetContainer(), e.GetImage(), e.GetDigest(), e.GetPlatform()})
			if seen[key] {
				t.Errorf("%q gives %v twice", text, e)
			}
			seen[key] = true
		}
	})
}

// TestFirstStart checks that equal entries keep the first time at which one of their containers was started.
func TestFirstStart(t *testing.T) {
	started := func(at string) string {
		return strings.Replace(podOf("Running", "app:1", "r.io/app@"+one), `"running": {}`,
			`"running": {"startedAt": "`+at+`"}`, 1)
	}
	got, err := Parse("", []byte(podsOf(started("2026-03-02T00:00:00Z"),
		podOf("Running", "app:1", "r.io/app@"+one), started("2026-03-01T00:00:00Z"))))
	if err != nil || len(got) != 1 || got[0].GetCopies() != 3 ||
		got[0].GetStartTime().AsTime().Format(time.DateOnly) != "2026-03-01" {
		t.Errorf("%v, %v, want three copies since 2026-03-01", got, err)
	}
}
