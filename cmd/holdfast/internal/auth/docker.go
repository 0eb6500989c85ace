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
)

// A dockerConfig is the file in which docker and similar programs look for
// passwords. Keys that are not needed here stay as they are.
type dockerConfig struct {
	path string
	all  map[string]json.RawMessage
}

var safeName = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)

// saveDocker stores a pull token for docker, and removes the password from what is
// shown.
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
	if replaced && helper != "" { // the file itself has not been written yet
		if err := c.write(); err != nil {
			return err
		}
	}
	t.Password = ""
	a.Note("saved for %s in %s", t.Registry, location)
	if replaced {
		a.Note("docker uses the pull token instead of your session now; to go back: holdfast auth configure-docker")
	}
	return nil
}

// dropOwnHelper takes this program away as the helper of a registry: it makes a token
// for every command and stores none, and docker asks a helper before it reads the file.
// The file is not written yet.
func (c dockerConfig) dropOwnHelper(registry string) (dropped bool, _ error) {
	helpers := map[string]string{}
	if err := c.get("credHelpers", &helpers); err != nil || helpers[registry] != helper {
		return false, err
	}
	delete(helpers, registry)
	if len(helpers) == 0 {
		delete(c.all, "credHelpers")
		return true, nil
	}
	text, err := json.Marshal(helpers)
	c.all["credHelpers"] = text
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
	c := dockerConfig{path: filepath.Join(dir, "config.json"), all: map[string]json.RawMessage{}}
	text, err := os.ReadFile(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	if json.Unmarshal(text, &c.all) != nil || c.all == nil { // an error may quote a password
		return c, problem.Usage("%s is not a JSON object", c.path)
	}
	return c, nil
}

// helper returns the program that stores the passwords of a registry, or "" if the
// file does.
func (c dockerConfig) helper(registry string) (string, error) {
	helpers, name := map[string]string{}, ""
	if err := c.get("credHelpers", &helpers); err != nil {
		return "", err
	}
	if err := c.get("credsStore", &name); err != nil {
		return "", err
	}
	if own := helpers[registry]; own != "" {
		name = own
	}
	if name != "" && !safeName.MatchString(name) {
		return "", problem.Usage("%s names a program that cannot be one", c.path)
	}
	return name, nil
}

func (c dockerConfig) get(key string, v any) error {
	if text, ok := c.all[key]; ok && json.Unmarshal(text, v) != nil {
		return problem.Usage("%s: %s is not as docker writes it", c.path, key)
	}
	return nil
}

// store writes the password into the file itself.
func (c dockerConfig) store(t pullToken) error {
	text := base64.StdEncoding.EncodeToString([]byte(t.Username + ":" + t.Password))
	return c.putEntry("auths", t.Registry, map[string]string{"auth": text})
}

// putEntry changes one entry of a map in the file.
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
	if c.all[key], err = json.Marshal(entries); err != nil {
		return err
	}
	return c.write()
}

func (c dockerConfig) write() error {
	text, err := json.MarshalIndent(c.all, "", "\t")
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

// HelperName is the name by which Docker runs this program to get a password: a
// prefix, and the name in Docker's settings.
const (
	helper     = "holdfast"
	HelperName = "docker-credential-" + helper

	loginName = "_token" // the user name that goes with a token
)

func configureDocker(a *noun.App) *cobra.Command {
	var bin string
	cmd := &cobra.Command{
		Use: "configure-docker", Short: "Configure docker to get registry passwords from this command",
		Long: "Registers this program as credential helper of the registry in the settings of Docker\n" +
			"(~/.docker/config.json, or DOCKER_CONFIG), and links it as " + HelperName + "\n" +
			"in its own folder or that of --bin.\n" +
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
			a.Note("%s signs in to %s by itself now", config.path, host)
			return nil
		}),
	}
	cmd.Flags().StringVar(&bin, "bin", "", "`FOLDER` on the PATH in which to create "+HelperName)
	return cmd
}

// installHelper links this program under HelperName.
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
		return problem.Usage("cannot make %s: %v", link, err).
			Hint("name a folder of your PATH that you may write to: --bin FOLDER")
	}
	if found, err := exec.LookPath(HelperName); err != nil {
		a.Note("warning: %s is not on your PATH, and Docker will not find %s", dir, HelperName)
	} else if found, _ = filepath.EvalSymlinks(found); found != self {
		a.Note("warning: another %s comes first on your PATH", HelperName)
	}
	return nil
}

// relink makes a link to target. It replaces another link, but not a file.
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
		return fmt.Errorf("there is a file of that name")
	}
	return os.Symlink(target, link)
}

// CredentialHelper returns the command that Docker runs with a verb, and with the
// registry on standard input.
func CredentialHelper(a *noun.App) *cobra.Command {
	cmd := a.Branch("credential-helper", "Answer requests of Docker for passwords")
	cmd.Hidden = true // Docker calls it, by its other name
	for verb, answer := range map[string]func(context.Context, *noun.App) error{
		"get": helperGet, "list": helperList, "store": helperStore,
		"erase": func(context.Context, *noun.App) error { return nil }, // nothing is stored
	} {
		cmd.AddCommand(&cobra.Command{
			Use: verb, Short: "Answer the verb " + verb, Args: cobra.NoArgs,
			RunE: a.Do(func(ctx context.Context, _ *cobra.Command, _ []string) error { return answer(ctx, a) }),
		})
	}
	return cmd
}

// notFound is the text by which Docker knows that there is no password.
const notFound = "credentials not found in native keychain"

// helperGet prints a token, if the registry is that of the server.
func helperGet(ctx context.Context, a *noun.App) error {
	asked, err := io.ReadAll(io.LimitReader(a.In, 4096))
	if err != nil {
		return err
	}
	server := strings.TrimSpace(string(asked))
	host, token, err := registryToken(ctx, a)
	if err != nil {
		fmt.Fprintln(a.Out, err) // Docker shows what is on standard output
		return err
	}
	if !isRegistry(server, host) {
		fmt.Fprintln(a.Out, notFound)
		return problem.New(problem.ExitNotFound, "%s is not the registry of this server", server)
	}
	return json.NewEncoder(a.Out).Encode(map[string]string{"ServerURL": server, "Username": loginName, "Secret": token})
}

// isRegistry reports whether server, which may be an address, is at a host.
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

// helperList prints for which registries there are passwords.
func helperList(ctx context.Context, a *noun.App) error {
	host, err := registry.Host(ctx, a)
	if err != nil {
		return err
	}
	return json.NewEncoder(a.Out).Encode(map[string]string{host: loginName})
}

// helperStore refuses passwords, because each command gets a new one.
func helperStore(_ context.Context, a *noun.App) error {
	p := problem.Usage("passwords are not kept: docker login is not needed")
	fmt.Fprintln(a.Out, p.Text)
	return p
}
