package buildinfo

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestDescribe(t *testing.T) {
	const commit = "a75d8a9c3e110f2b6a75d8a9c3e110f2b6a75d8a"
	checkout := []debug.BuildSetting{
		{Key: "vcs.revision", Value: commit},
		{Key: "vcs.time", Value: "2026-11-16T07:00:00Z"},
		{Key: "vcs.modified", Value: "false"},
	}
	changed := []debug.BuildSetting{{Key: "vcs.revision", Value: commit}, {Key: "vcs.modified", Value: "true"}}
	program := func(version string, settings []debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: version}, Settings: settings}
	}
	release := Build{Version: "v1.2.3", Commit: commit, Date: "2026-11-16T07:00:00Z"}
	tests := map[string]struct {
		release Build
		info    *debug.BuildInfo
		want    string
	}{
		"a release": {release, program("(devel)", nil), "v1.2.3 (commit a75d8a9c3e11, 2026-11-16T07:00:00Z, "},
		"a release, in a clone": {release, program("v1.2.3-0.x", checkout),
			"v1.2.3 (commit a75d8a9c3e11, 2026-11-16T07:00:00Z, "},
		"go build in a clone": {Build{}, program("v0.0.0-x", checkout),
			"v0.0.0-x (commit a75d8a9c3e11, 2026-11-16T07:00:00Z, "},
		"with changes": {Build{}, program("v0.0.0-x+dirty", changed),
			"v0.0.0-x+dirty (commit a75d8a9c3e11, modified, "},
		"go install": {Build{}, program("v1.2.3", nil), "v1.2.3 ("},
		"no version": {Build{}, program("(devel)", checkout),
			commit + " (commit a75d8a9c3e11, 2026-11-16T07:00:00Z, "},
		"go build -buildvcs=0": {Build{}, program("(devel)", nil), "devel ("},
		"no information":       {Build{}, nil, "devel ("},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			want := tt.want + runtime.Version() + ", " + runtime.GOOS + "/" + runtime.GOARCH + ")"
			if got := describe(tt.release, tt.info).String(); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}
