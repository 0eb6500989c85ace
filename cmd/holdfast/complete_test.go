package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
)

// TestCompletionReads: the completion of every command and flag shows text for people. It
// has a description for each word. It has no hidden commands or internals, and not the
// quotes that mark the values of flags in the help.
func TestCompletionReads(t *testing.T) {
	t.Setenv("HOLDFAST_API", "http://127.0.0.1:1") // no server listens at this address
	t.Setenv("HOLDFAST_CLIENT_CONFIG", filepath.Join(t.TempDir(), "config.yaml"))
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		path := strings.Fields(cmd.CommandPath())[1:]
		typed := []string{"--"}
		if cmd.HasAvailableSubCommands() {
			typed = append(typed, "")
		}
		for _, word := range typed {
			for line := range strings.Lines(completions(t, append(path, word)...)) {
				checkCompletion(t, strings.Join(append(path, word), " "), strings.TrimSuffix(line, "\n"))
			}
		}
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				visit(sub)
			}
		}
	}
	visit(root(noun.NewApp(os.Stdin, os.Stdout, os.Stderr)))
	for word := range strings.FieldsSeq(completions(t, "iam", "can", "me", "")) {
		if strings.Contains(word, "internal") {
			t.Errorf("the capability %s is completed, but only the service itself uses it", word)
		}
	}
}

func checkCompletion(t *testing.T, typed, line string) {
	t.Helper()
	word, about, _ := strings.Cut(line, "\t")
	switch {
	case strings.HasPrefix(line, ":"): // directive for the shell, not a word
	case strings.ContainsAny(line, "`\x1b"):
		t.Errorf("after %q: %q contains quotes", typed, line)
	case strings.HasPrefix(word, "_"), word == "credential-helper", word == "man":
		t.Errorf("after %q: %s is internal", typed, word)
	case about == "":
		t.Errorf("after %q: %s has no description", typed, word)
	}
}

// completions returns the program's completions of typed.
func completions(t *testing.T, typed ...string) string {
	t.Helper()
	folder := t.TempDir()
	out, err := os.Create(filepath.Join(folder, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }() // an error of Close does not matter, because the file is read by its name
	notes, err := os.Create(filepath.Join(folder, "notes"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = notes.Close() }() // an error of Close does not matter, because nobody reads the file
	args := append([]string{cobra.ShellCompRequestCmd}, typed...)
	if code := runWith(t.Context(), args, os.Stdin, out, notes); code != 0 {
		t.Fatalf("completion of %q: exit code %d", typed, code)
	}
	text, err := os.ReadFile(out.Name())
	if err != nil || !strings.Contains(string(text), "\n:") && !strings.HasPrefix(string(text), ":") {
		t.Fatalf("completion of %q: %q, %v", typed, text, err)
	}
	return string(text)
}
