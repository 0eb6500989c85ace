package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const sumsName = "SHA256SUMS"

// writeDist writes everything except the image: for each program and platform an archive
// and its SBOM, for Linux also packages, and the checksums of all files.
func writeDist(ctx context.Context, b *builder, opts options, out io.Writer) error {
	if err := emptyFolder(opts.out, sumsName); err != nil {
		return err
	}
	for _, p := range []program{server, client} {
		for _, on := range p.platforms {
			if len(opts.platforms) > 0 && !slices.Contains(opts.platforms, on) {
				continue
			}
			if err := writeTarget(ctx, b, p, on, opts.out); err != nil {
				return fmt.Errorf("%s for %s: %w", p.name, on, err)
			}
			fmt.Fprintln(out, p.name, b.source.version, "for", on)
		}
	}
	if err := writeSums(opts.out); err != nil {
		return err
	}
	if err := finish(opts.out); err != nil {
		return err
	}
	fmt.Fprintln(out, "written to", opts.out)
	return nil
}

// writeTarget writes the files of one program for one platform.
func writeTarget(ctx context.Context, b *builder, p program, on platform, dir string) error {
	binary, err := b.binary(ctx, p, on)
	if err != nil {
		return err
	}
	program, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	documents, err := b.documents(ctx, p, on)
	if err != nil {
		return err
	}
	sbom, err := sbomOf(b.source, p, binary)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%s_%s_%s_%s", p.name, b.source.number(), on.os, on.arch)
	if err := os.WriteFile(filepath.Join(dir, name+".cdx.json"), sbom, 0o644); err != nil {
		return err
	}
	content := append(slices.Clone(documents), file{path: filepath.Base(binary), mode: 0o755, data: program})
	if p.name == server.name {
		content = append(content, file{path: "holdfastd.yaml", data: packagedFile("holdfastd.yaml")},
			file{path: "holdfastd.env", mode: 0o600, data: packagedFile("holdfastd.env")})
	}
	for i := range content {
		content[i].path = path.Join(name, content[i].path)
	}
	if err := writeArchive(filepath.Join(dir, name), on, content, b.source.date); err != nil {
		return err
	}
	if on.os != "linux" {
		return nil
	}
	documents = append(documents, file{path: "sbom.cdx.json", data: sbom})
	return writePackages(b.source, p, on.arch, program, documents, dir)
}

// unfinished is a file that a folder contains until it is complete.
const unfinished = ".unfinished"

// emptyFolder creates a folder with the file unfinished. It first empties a folder that contains an earlier release,
// which has the file marker, or that is unfinished. It returns an error for a folder with other files.
func emptyFolder(dir, marker string) error {
	entries, err := os.ReadDir(dir)
	if err == nil && len(entries) > 0 {
		ours := func(e os.DirEntry) bool { return e.Name() == marker || e.Name() == unfinished }
		if !slices.ContainsFunc(entries, ours) {
			return fmt.Errorf("%s contains other files, and no %s of an earlier release", dir, marker)
		}
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, unfinished), nil, 0o644)
}

// finish marks a folder as complete.
func finish(dir string) error { return os.Remove(filepath.Join(dir, unfinished)) }

// writeSums writes the file that `sha256sum --check` reads.
func writeSums(dir string) error {
	entries, err := os.ReadDir(dir) // ReadDir sorts the entries by name
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, e := range entries {
		if e.Name() == unfinished {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), e.Name())
	}
	return os.WriteFile(filepath.Join(dir, sumsName), []byte(sums.String()), 0o644)
}
