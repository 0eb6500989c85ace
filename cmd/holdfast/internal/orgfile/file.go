package orgfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/orgfile/format"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/orgfile/model"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
)

// rootFile is the name of the file with the resources that are in no folder below the group.
const rootFile = "organization.yaml"

// writeFolder writes one file for each folder directly below the group. It refuses a folder
// that has other files, because they would be read as a part of the organization.
func writeFolder(folder string, m *model.Model, notes []string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	parts := format.Split(m)
	expected := map[string]bool{}
	for name := range parts {
		expected[fileName(name)] = true
	}
	existing, err := yamlFiles(folder)
	if err != nil {
		return err
	}
	for _, path := range existing {
		if !expected[filepath.Base(path)] {
			return problem.Usage("%s has %s, which is not a part of the export", folder, filepath.Base(path)).Hint(
				"remove it, or choose an empty folder")
		}
	}
	for name, part := range parts {
		if name != "" {
			notes = nil
		}
		if err := writeFile(filepath.Join(folder, fileName(name)), part, notes); err != nil {
			return err
		}
	}
	return nil
}

func fileName(folder string) string {
	if folder == "" {
		return rootFile
	}
	return "folder-" + folder + ".yaml"
}

func writeFile(path string, m *model.Model, notes []string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return format.Write(f, m, notes)
}

// yamlFiles returns the paths of the files directly in a folder that can be parts of an
// organization.
func yamlFiles(folder string) (paths []string, _ error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); !e.IsDir() && (ext == ".yaml" || ext == ".yml") {
			paths = append(paths, filepath.Join(folder, e.Name()))
		}
	}
	return paths, nil
}

// readFiles reads a file, a folder of files, or standard input for "-".
func readFiles(a *noun.App, path string) (files []format.File, _ error) {
	if path == "-" {
		text, err := io.ReadAll(io.LimitReader(a.In, format.MaxSize+1))
		return []format.File{{Name: "standard input", Text: text}}, err
	}
	paths := []string{path}
	info, err := os.Stat(path)
	if err != nil {
		return nil, problem.Usage("%s", err)
	}
	if info.IsDir() {
		if paths, err = yamlFiles(path); err != nil {
			return nil, err
		}
		if len(paths) == 0 {
			return nil, problem.Usage("%s has no file whose name ends in .yaml", path)
		}
	}
	total := 0
	for _, p := range paths {
		f, err := readFile(p)
		if err != nil {
			return nil, err
		}
		if total += len(f.Text); total > maxTotal {
			return nil, problem.Usage("%s has more than %d MiB of files", path, maxTotal>>20)
		}
		files = append(files, f)
	}
	return files, nil
}

// maxTotal is the largest size of all files of a folder.
const maxTotal = 4 * format.MaxSize

// readFile reads at most one byte more than the largest size of a file, so that the parser
// can refuse it.
func readFile(path string) (format.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return format.File{}, problem.Usage("%s", err)
	}
	defer func() { _ = f.Close() }() // an error of Close does not matter, because the file was only read
	text, err := io.ReadAll(io.LimitReader(f, format.MaxSize+1))
	return format.File{Name: path, Text: text}, err
}
