package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// TestPage runs the commands in docs/installing.md on the files of the release, except
// commands that need root or a network.
func TestPage(t *testing.T) {
	m := released(t)
	page, err := os.ReadFile("../docs/installing.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```sh try\n(.*?)^```$").FindAllStringSubmatch(string(page), -1)
	if len(blocks) == 0 {
		t.Fatal("no block is marked ```sh try")
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(m.files)); err != nil {
		t.Fatal(err)
	}
	for _, block := range blocks {
		shell := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", block[1])
		shell.Dir = dir
		shell.Env = append(os.Environ(), "VERSION="+m.source.number(), "ARCH="+here.arch)
		out, err := shell.CombinedOutput()
		if err != nil {
			t.Errorf("%v:\n%s\n%s", err, block[1], out)
		}
		if strings.Contains(block[1], "--version") && !strings.Contains(string(out), m.source.version) {
			t.Errorf("does not say version %s:\n%s", m.source.version, out)
		}
	}
}

// TestPrograms checks that both programs are static and report their version and commit.
func TestPrograms(t *testing.T) {
	m := released(t)
	for _, p := range []program{server, client} {
		binary, err := m.binary(t.Context(), p, here)
		if err != nil {
			t.Fatal(err)
		}
		checkStatic(t, binary)
		got, err := m.ask(t.Context(), p, "--version")
		if err != nil {
			t.Fatal(err)
		}
		want := p.name + " " + m.source.version + " (commit " + m.source.commit[:12] + ", " +
			m.source.date.Format(time.RFC3339) + ", go1."
		if !strings.HasPrefix(got, want) {
			t.Errorf("--version says %s, want %s…", got, want)
		}
		content, err := os.ReadFile(binary)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{m.source.dir + "/", m.work} {
			if strings.Contains(string(content), path) {
				t.Errorf("%s contains %s, a path of this machine", p.name, path)
			}
		}
	}
}

// checkStatic fails the test if a program needs a loader or a library.
func checkStatic(t *testing.T, binary string) {
	t.Helper()
	f, err := elf.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("%s is not static", binary)
		}
	}
}

// TestSBOM checks that the SBOM lists the program and every module that is linked into
// it.
func TestSBOM(t *testing.T) {
	m := released(t)
	for p, module := range map[*program]string{&server: "modernc.org/sqlite", &client: "github.com/spf13/cobra"} {
		f, err := os.Open(m.one(t, p.name+"_*_linux_"+here.arch+".cdx.json"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		var bom cdx.BOM
		if err := cdx.NewBOMDecoder(f, cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
			t.Fatal(err)
		}
		binary, err := m.binary(t.Context(), *p, here)
		if err != nil {
			t.Fatal(err)
		}
		checkSBOM(t, bom, binary, module)
	}
}

func checkSBOM(t *testing.T, bom cdx.BOM, binary, module string) {
	t.Helper()
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	if got := (*bom.Metadata.Component.Hashes)[0].Value; got != hex.EncodeToString(sum[:]) {
		t.Errorf("%s: the SBOM is of a program with the sum %s", binary, got)
	}
	modules, scripts, found := 0, []string{}, false
	for _, c := range *bom.Components {
		if strings.HasPrefix(c.PackageURL, "pkg:npm/") {
			scripts = append(scripts, c.PackageURL)
			continue
		}
		modules++
		found = found || c.Name == module && strings.HasPrefix(c.PackageURL, "pkg:golang/"+module+"@v")
	}
	if !found {
		t.Errorf("%s: %s is missing", binary, module)
	}
	if want := len(info.Deps) + 1; modules != want { // all dependencies, and the standard library
		t.Errorf("%s: %d modules, want %d", binary, modules, want)
	}
	all := strings.Join(scripts, "\n")
	isServer, hasConsole := strings.Contains(module, "sqlite"), strings.Contains(all, "pkg:npm/%40preact/signals@")
	if isServer != hasConsole || strings.Contains(all, "typescript@") {
		t.Errorf("%s: the packages of the console are\n%s", binary, all)
	}
}

// TestArchive checks that an archive contains the manual, completion and licenses.
func TestArchive(t *testing.T) {
	m := released(t)
	dir := t.TempDir()
	for p, want := range map[*program][]string{
		&server: {"holdfastd", "holdfastd.yaml", "LICENSE", "THIRD-PARTY-LICENSES", "man/man8/holdfastd.8"},
		&client: {"holdfast", "LICENSE", "THIRD-PARTY-LICENSES", "man/man1/holdfast-iam-groups-create.1",
			"bash-completion/completions/holdfast", "zsh/vendor-completions/_holdfast", "powershell/holdfast.ps1"},
	} {
		archive := m.one(t, p.name+"_*_linux_"+here.arch+".tar.gz")
		if _, err := output(exec.CommandContext(t.Context(), "tar", "-xzf", archive, "-C", dir)); err != nil {
			t.Fatal(err)
		}
		for _, name := range want {
			file := filepath.Join(dir, strings.TrimSuffix(filepath.Base(archive), ".tar.gz"), name)
			text, err := os.ReadFile(file)
			if err != nil || len(text) == 0 {
				t.Errorf("%s: %v", name, err)
			}
			if name == "THIRD-PARTY-LICENSES" && bytes.Contains(text, []byte("\npreact ")) != (p == &server) {
				t.Errorf("the licenses of the console are not those of %s", p.name)
			}
		}
	}
}
