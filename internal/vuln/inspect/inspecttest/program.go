package inspecttest

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// GoProgram builds a Go program that contains modules, and returns its content. modules are versions by module path. It
// downloads nothing, because it generates each module with one variable.
func GoProgram(t testing.TB, path string, modules map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	gomod, list := "module "+path+"\n\ngo 1.22\n", ""
	for i, module := range slices.Sorted(maps.Keys(modules)) {
		gomod += "\nrequire " + module + " " + modules[module] + "\n"
		list += fmt.Sprintf("# %s %s\n## explicit; go 1.22\n%s\n", module, modules[module], module)
		imports := fmt.Sprintf("import m%d %q\n\nvar _ = m%d.Name\n\n", i, module, i)
		write(t, filepath.Join(dir, "vendor", module, "name.go"), "package name\n\nvar Name = \"name\"\n")
		write(t, filepath.Join(dir, fmt.Sprintf("m%d.go", i)), "package main\n\n"+imports)
	}
	write(t, filepath.Join(dir, "go.mod"), gomod)
	write(t, filepath.Join(dir, "vendor", "modules.txt"), list)
	write(t, filepath.Join(dir, "main.go"), "package main\n\nfunc main() {}\n")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-mod=vendor", "-ldflags=-s -w", "-o", "program", ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	program, err := os.ReadFile(filepath.Join(dir, "program"))
	must(err)
	return string(program)
}

func write(t testing.TB, path, content string) {
	t.Helper()
	must(os.MkdirAll(filepath.Dir(path), 0o700))
	must(os.WriteFile(path, []byte(strings.TrimSpace(content)+"\n"), 0o600))
}
