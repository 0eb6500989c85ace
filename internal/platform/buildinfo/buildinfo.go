// Package buildinfo reports the version, commit and date of the running program.
package buildinfo

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"strings"
)

// A release sets these variables with -ldflags '-X …/buildinfo.version=v1.2.3'. It does
// not rely on the information that the go command records, because that depends on how
// the sources were cloned.
var version, commit, date string

// A Build describes the running program. Unknown fields are empty.
type Build struct {
	Version  string // a release, a pseudo-version of Go, or "devel"; never empty
	Commit   string
	Date     string // time of the commit, in RFC 3339 format
	Modified bool   // whether the sources differed from the commit
	Go       string
	Platform string // operating system and architecture, such as linux/amd64
}

// Read returns the information that the linker and the go command have written
// into the program. `go build` in a checkout records the commit; `go install` of
// a version records that version.
func Read() Build {
	info, _ := debug.ReadBuildInfo()
	return describe(Build{Version: version, Commit: commit, Date: date}, info)
}

// Version returns the version alone.
func Version() string { return Read().Version }

// describe adds info, which may be nil, to the values that a release has set.
func describe(b Build, info *debug.BuildInfo) Build {
	b.Go, b.Platform = runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH
	if info != nil {
		if v := info.Main.Version; v != "(devel)" {
			b.Version = cmp.Or(b.Version, v)
		}
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Commit = cmp.Or(b.Commit, s.Value)
			case "vcs.time":
				b.Date = cmp.Or(b.Date, s.Value)
			case "vcs.modified":
				b.Modified = s.Value == "true"
			}
		}
	}
	b.Version = cmp.Or(b.Version, b.Commit, "devel")
	return b
}

// String returns the line that --version prints after the program's name.
func (b Build) String() string {
	var details []string
	if b.Commit != "" {
		commit := "commit " + b.Commit[:min(12, len(b.Commit))]
		if b.Modified {
			commit += ", modified"
		}
		details = append(details, commit)
	}
	if b.Date != "" {
		details = append(details, b.Date)
	}
	return b.Version + " (" + strings.Join(append(details, b.Go, b.Platform), ", ") + ")"
}
