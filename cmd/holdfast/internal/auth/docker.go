package auth

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/registry"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/settings"
	"github.com/holdfast-dev/holdfast/internal/platform/buildinfo"
)

// A dockerConfig is the file in which docker and similar programs look for passwords.
// Unknown keys are preserved.
type dockerConfig struct {
	path string
	keys map[string]json.RawMessage
}

var safeName = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

// saveDocker stores a pull token for docker. It removes the password from t, so that it
// is not printed.
func saveDocker(ctx context.Context, a *noun.App, t *pullToken) error {
	c, err := readDockerConfig()
	if err != nil {
		return err
	}
	replaced, err := c.dropOwnHelper(t.Registry)
	if err != nil {
		return err
	}
	helper, err := c.helper(t.Registry)
	if err != nil {
		return err
	}
	location := c.path
	if helper != "" {
		location = "docker-credential-" + helper
		err = storeWithHelper(ctx, location, *t)
	} else {
		err = c.store(*t)
	}
	if err != nil {
		return err
	}
	if replaced && helper != "" { // the file has not been written yet
		if err := c.write(); err != nil {
			return err
		}
	}
	t.Password = ""
	a.Note("saved for %s in %s", t.Registry, location)
	if replaced {
		a.Note("docker now uses the pull token instead of your session; to undo this: holdfast auth configure-docker")
	}
	return nil
}

// dropOwnHelper removes this program as the credential helper of a registry. It must be
// removed because docker asks a helper before it reads the file, and this program stores
// no passwords but issues a token for every command. dropOwnHelper does not write the
// file.
func (c dockerConfig) dropOwnHelper(registry string) (dropped bool, _ error) {
	helpers := map[string]string{}
	if err := c.get("credHelpers", &helpers); err != nil || helpers[registry] != helper {
		return false, err
	}
	delete(helpers, registry)
	if len(helpers) == 0 {
		delete(c.keys, "credHelpers")
		return true, nil
	}
	text, err := json.Marshal(helpers)
	c.keys["credHelpers"] = text
	return true, err
}

func readDockerConfig() (dockerConfig, error) {
	dir := os.Getenv("DOCKER_CONFIG")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return dockerConfig{}, err
		}
		dir = filepath.Join(home, ".docker")
	}
	c := dockerConfig{path: filepath.Join(dir, "config.json"), keys: map[string]json.RawMessage{}}
	text, err := os.ReadFile(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	if json.Unmarshal(text, &c.keys) != nil || c.keys == nil { // the decoder's error may quote a password
		return c, problem.Usage("%s is not a JSON object", c.path)
	}
	return c, nil
}

// helper returns the program that stores the passwords of a registry, or "" if the file
// stores them.
func (c dockerConfig) helper(registry string) (string, error) {
	helpers, name := map[string]string{}, ""
	if err := c.get("credHelpers", &helpers); err != nil {
		return "", err
	}
	if err := c.get("credsStore", &name); err != nil {
		return "", err
	}
	if program := helpers[registry]; program != "" {
		name = program
	}
	if name != "" && !safeName.MatchString(name) {
		return "", problem.Usage("%s contains an invalid name of a credential helper", c.path)
	}
	return name, nil
}

func (c dockerConfig) get(key string, v any) error {
	if text, ok := c.keys[key]; ok && json.Unmarshal(text, v) != nil {
		return problem.Usage("%s: %s does not have docker's format", c.path, key)
	}
	return nil
}

// store writes the password into the file.
func (c dockerConfig) store(t pullToken) error {
	text := base64.StdEncoding.EncodeToString([]byte(t.Username + ":" + t.Password))
	return c.putEntry("auths", t.Registry, map[string]string{"auth": text})
}

// putEntry sets one entry of a map in the file.
func (c dockerConfig) putEntry(key, name string, v any) error {
	entries := map[string]json.RawMessage{}
	if err := c.get(key, &entries); err != nil {
		return err
	}
	text, err := json.Marshal(v)
	if err != nil || bytes.Equal(entries[name], text) {
		return err
	}
	if entries == nil {
		entries = map[string]json.RawMessage{}
	}
	entries[name] = text
	if c.keys[key], err = json.Marshal(entries); err != nil {
		return err
	}
	return c.write()
}

func (c dockerConfig) write() error {
	text, err := json.MarshalIndent(c.keys, "", "\t")
	if err != nil {
		return err
	}
	return settings.WritePrivate(c.path, append(text, '\n'))
}

// storeWithHelper passes the password to a program on its standard input.
func storeWithHelper(ctx context.Context, program string, t pullToken) error {
	text, err := json.Marshal(map[string]string{"ServerURL": t.Registry, "Username": t.Username, "Secret": t.Password})
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, "store")
	cmd.Stdin = bytes.NewReader(text)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	return nil
}

// HelperName is the name under which Docker starts this program to get a password: a
// prefix, and the name in Docker's settings.
const (
	helper     = "holdfast"
	HelperName = "docker-credential-" + helper

	loginName = "_token" // user name that docker sends if the password is a token
)

func configureDocker(a *noun.App) *cobra.Command {
	var bin string
	cmd := &cobra.Command{
		Use: "configure-docker", Short: "Configure docker to get registry passwords from this command",
		Long: "Registers this program as the credential helper for the registry in the settings of Docker\n" +
			"(~/.docker/config.json, or DOCKER_CONFIG), and links it as " + HelperName + "\n" +
			"in its own folder or in the folder of --bin.\n" +
			"After that docker, crane, skopeo, oras and cosign use a new token for every command.",
		Args: cobra.NoArgs,
		RunE: a.Ask(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			host, err := registry.Host(ctx, a)
			if err != nil {
				return err
			}
			if err := installHelper(a, bin); err != nil {
				return err
			}
			config, err := readDockerConfig()
			if err != nil {
				return err
			}
			if err := config.putEntry("credHelpers", host, helper); err != nil {
				return err
			}
			a.Note("docker now signs in to %[2]s automatically, by %[1]s", config.path, host)
			return nil
		}),
	}
	cmd.Flags().StringVar(&bin, "bin", "", "`FOLDER` on the PATH in which to create "+HelperName)
	return cmd
}

// installHelper creates a link to this program with the name HelperName.
func installHelper(a *noun.App, dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if dir == "" {
		dir = filepath.Dir(self)
	}
	link := filepath.Join(dir, HelperName)
	if err := relink(self, link); err != nil {
		return problem.Usage("cannot create %s: %v", link, err).
			Hint("choose a folder on your PATH that you may write to: --bin FOLDER")
	}
	if found, err := exec.LookPath(HelperName); err != nil {
		a.Note("warning: %s is not on your PATH, and Docker will not find %s", dir, HelperName)
	} else if found, _ = filepath.EvalSymlinks(found); found != self {
		a.Note("warning: another %s comes first on your PATH", HelperName)
	}
	return nil
}

// relink creates a link to target. It replaces another link, but not a file.
func relink(target, link string) error {
	old, err := os.Readlink(link)
	switch {
	case err == nil && old == target:
		return nil
	case err == nil:
		if err := os.Remove(link); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("a file with this name exists")
	}
	return os.Symlink(target, link)
}

// CredentialHelper returns the command that Docker runs with a verb as argument and the
// registry on standard input.
func CredentialHelper(a *noun.App) *cobra.Command {
	cmd := a.Branch("credential-helper", "Answer requests of Docker for passwords")
	cmd.Hidden = true // Docker calls the command by HelperName
	for verb, answer := range map[string]func(context.Context, *noun.App) error{
		"get": helperGet, "list": helperList, "store": helperStore,
		// There is nothing to erase, because nothing is stored.
		"erase": func(context.Context, *noun.App) error { return nil },
		"version": func(_ context.Context, a *noun.App) error {
			_, err := fmt.Fprintf(a.Out, "%s (github.com/holdfast-dev/holdfast) %s\n", HelperName, buildinfo.Version())
			return err
		},
	} {
		cmd.AddCommand(&cobra.Command{
			Use: verb, Short: "Answer the verb " + verb, Args: cobra.NoArgs,
			RunE: a.Do(func(ctx context.Context, _ *cobra.Command, _ []string) error { return answer(ctx, a) }),
		})
	}
	return cmd
}

// notFound is the text from which Docker knows that there is no password.
const notFound = "credentials not found in native keychain"

// helperGet prints a token if Docker asks for the registry of the server.
func helperGet(ctx context.Context, a *noun.App) error {
	asked, err := io.ReadAll(io.LimitReader(a.In, 4096))
	if err != nil {
		return err
	}
	server := strings.TrimSpace(string(asked))
	host, token, err := registryToken(ctx, a)
	if err != nil {
		fmt.Fprintln(a.Out, err) // Docker shows what a helper prints to standard output
		return err
	}
	if !isRegistry(server, host) {
		fmt.Fprintln(a.Out, notFound)
		return problem.New(problem.ExitNotFound, "%s is not the registry of this server", server)
	}
	return json.NewEncoder(a.Out).Encode(map[string]string{"ServerURL": server, "Username": loginName, "Secret": token})
}

// isRegistry reports whether server, which may be an address, has the host.
func isRegistry(server, host string) bool {
	_, rest, ok := strings.Cut(server, "://")
	if !ok {
		rest = server
	}
	rest, _, _ = strings.Cut(rest, "/")
	return rest == host || strings.HasSuffix(rest, "."+host)
}

// registryToken returns the host of the registry, and a token for it.
func registryToken(ctx context.Context, a *noun.App) (host, token string, err error) {
	if host, err = registry.Host(ctx, a); err != nil {
		return "", "", err
	}
	token, err = a.TokenFor(ctx, host)
	return host, token, err
}

// helperList prints the registry for which there is a password.
func helperList(ctx context.Context, a *noun.App) error {
	host, err := registry.Host(ctx, a)
	if err != nil {
		return err
	}
	return json.NewEncoder(a.Out).Encode(map[string]string{host: loginName})
}

// helperStore refuses to store passwords, because each command gets a new one.
func helperStore(_ context.Context, a *noun.App) error {
	p := problem.Usage("passwords are not stored: docker login is not needed")
	fmt.Fprintln(a.Out, p.Text)
	return p
}
