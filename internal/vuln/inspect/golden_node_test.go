package inspect_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/testkit/testprogram"
	"github.com/holdfast-dev/holdfast/internal/vuln/inspect"
	"github.com/holdfast-dev/holdfast/internal/vuln/inspect/inspecttest"
)

// A nodeProject is a folder with archives of packages that depend on each other in different versions, and an image
// with a project that depends on them. One dependency is a package of the project itself, below packages/.
type nodeProject struct{ folder, image, app string }

func newNodeProject(t *testing.T, workspace string) nodeProject {
	t.Helper()
	folder := t.TempDir()
	p := nodeProject{folder, filepath.Join(folder, "image"), filepath.Join(folder, "image/srv/app")}
	archive := func(name string) string { return "file:" + filepath.Join(folder, name) }
	needs := func(name, archived string) string {
		return fmt.Sprintf(`,"dependencies":{%q:%q}}`, name, archive(archived))
	}
	for dir, text := range map[string]string{
		"left-1":  `{"name":"left","version":"1.0.0"}`,
		"left-2":  `{"name":"left","version":"2.0.0-rc.1"}`,
		"scoped":  `{"name":"@me/scoped","version":"3.1.0"` + needs("left", "left-1.0.0.tgz"),
		"right":   `{"name":"right","version":"0.1.0"` + needs("left", "left-2.0.0-rc.1.tgz"),
		"renamed": `{"name":"original","version":"4.0.0"}`,
	} {
		put(t, filepath.Join(folder, "src", dir, "package.json"), text)
		put(t, filepath.Join(folder, "src", dir, "test/package.json"), `{"name":"fixture","version":"0.0.1"}`)
		run(t, filepath.Join(folder, "src", dir), "", testprogram.Installed(t, "npm"), "pack", "--silent",
			"--pack-destination", folder)
	}
	put(t, filepath.Join(p.app, "packages/tool/package.json"), `{"name":"@me/tool","version":"5.0.0"}`)
	put(t, filepath.Join(p.app, "package.json"), fmt.Sprintf(`{"name":"app","version":"1.0.0","private":true,
		"workspaces":["packages/*"],"dependencies":{"@me/tool":%q,"@me/scoped":%q,"right":%q,"left":%q,"renamed":%q}}`,
		workspace, archive("me-scoped-3.1.0.tgz"), archive("right-0.1.0.tgz"), archive("left-1.0.0.tgz"),
		archive("original-4.0.0.tgz")))
	return p
}

// check compares the packages of the image with a list.
func (p nodeProject) check(t *testing.T, want []string) {
	t.Helper()
	checkLines(t, inspected(t, folderLayer(t, p.image)), want, func(p inspect.Package) string {
		return p.Ecosystem + " " + p.Name + " " + p.Version
	})
}

// A nodeTree is a package in the output of `npm ls --json` and `pnpm list --json`, with its dependencies.
type nodeTree struct {
	From, Version, Path string
	Dependencies        map[string]nodeTree
}

// lines returns a line for each package that a tree contains. Names are those in the package.json of a package, if the
// tool prints its path. Otherwise they are the names of dependencies.
func (n nodeTree) lines() (all []string) {
	for name, d := range n.Dependencies {
		version := d.Version
		if strings.HasPrefix(version, "link:") || d.Path != "" {
			var own struct{ Name, Version string }
			text, err := os.ReadFile(filepath.Join(d.Path, "package.json"))
			must(err)
			must(json.Unmarshal(text, &own))
			name, version = own.Name, own.Version
		}
		all = append(append(all, "npm "+name+" "+version), d.lines()...)
	}
	return all
}

// TestGoldenNpm compares the packages that npm has installed with its own list. npm links to a package of the project
// itself by a symbolic link in a folder of a scope.
func TestGoldenNpm(t *testing.T) {
	npm, p := testprogram.Installed(t, "npm"), newNodeProject(t, "5.0.0")
	run(t, p.app, "", npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--cache", p.folder+"/cache")
	var tree nodeTree
	must(json.Unmarshal([]byte(run(t, p.app, "", npm, "ls", "--all", "--long", "--json")), &tree))
	p.check(t, tree.lines())
}

// TestGoldenPnpm compares the packages that pnpm has installed with its own list. All files are hard links to a store,
// which precedes them in the layer.
func TestGoldenPnpm(t *testing.T) {
	pnpm := testprogram.Path(t, "pnpm/node_modules/pnpm/bin/pnpm.cjs")
	node, p := testprogram.Path(t, "node/bin/node"), newNodeProject(t, "workspace:*")
	put(t, filepath.Join(p.app, "pnpm-workspace.yaml"), "packages: [\"packages/*\"]\n")
	run(t, p.app, "", node, pnpm, "install", "--offline", "--ignore-scripts", "--package-import-method", "hardlink",
		"--store-dir", filepath.Join(p.image, "a-store"))
	var trees []nodeTree
	must(json.Unmarshal([]byte(run(t, p.app, "", node, pnpm, "list", "--depth", "Infinity", "--json")), &trees))
	if len(trees) != 1 {
		t.Fatalf("pnpm lists %d projects", len(trees))
	}
	p.check(t, trees[0].lines())
}

// TestGoldenGo compares the modules in a program with the list of the go command, which includes the program itself and
// the version of Go.
func TestGoldenGo(t *testing.T) {
	folder := t.TempDir()
	program := inspecttest.GoProgram(t, "example.com/app", map[string]string{"example.com/Dep": "v1.2.3",
		"example.com/pre": "v0.0.0-20240102030405-0123456789ab", "example.com/v2mod/v2": "v2.0.1+incompatible"})
	name := filepath.Join(folder, "program")
	must(os.WriteFile(name, []byte(program), 0o700))
	var want []string
	for line := range strings.Lines(run(t, folder, "", "go", "version", "-m", name)) {
		fields := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, name): // the version of Go
			want = append(want, "Go stdlib "+strings.TrimPrefix(fields[1], "go"))
		case fields[0] == "mod":
			want = append(want, strings.TrimSuffix("Go "+fields[1]+" "+fields[2], " (devel)"))
		case fields[0] == "dep":
			want = append(want, "Go "+fields[1]+" "+strings.TrimPrefix(fields[2], "v"))
		}
	}
	checkLines(t, inspected(t, zipped(archive(file{name: "usr/bin/app", mode: 0o755, content: program}))), want,
		func(p inspect.Package) string { return strings.TrimSpace(p.Ecosystem + " " + p.Name + " " + p.Version) })
}
