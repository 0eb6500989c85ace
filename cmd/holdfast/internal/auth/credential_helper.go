package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/registry"
)

// HelperName is what Docker calls the program that knows passwords: its own
// prefix, and the name in its settings.
const (
	helper     = "holdfast"
	HelperName = "docker-credential-" + helper

	loginName = "_token" // whom the registry takes a token from
)

func configureDocker(a *noun.App) *cobra.Command {
	var bin string
	cmd := &cobra.Command{
		Use: "configure-docker", Short: "Let docker and its kin sign in to the registry by themselves",
		Long: "Names this program in Docker's settings (~/.docker/config.json, or DOCKER_CONFIG) as the one that knows the\n" +
			"password of the registry, and makes it available as " + HelperName + ", beside itself unless --bin names\n" +
			"another folder of the PATH. From then on docker, crane, skopeo, oras and cosign get a fresh token for every command.",
		Args: cobra.NoArgs,
		RunE: a.Ask(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			host, err := registry.Host(ctx, a)
			if err != nil {
				return err
			}
			if err := installHelper(a, bin); err != nil {
				return err
			}
			settings, err := readDockerConfig()
			if err != nil {
				return err
			}
			if err := settings.nameHelper(host); err != nil {
				return err
			}
			a.Note("%s signs in to %s by itself now", settings.path, host)
			return nil
		}),
	}
	cmd.Flags().StringVar(&bin, "bin", "", "`FOLDER` of the PATH to make "+HelperName+" available in")
	return cmd
}

// installHelper makes this program available under the name that Docker looks
// for.
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
		return problem.Usage("cannot make %s: %v", link, err).Hint("name a folder of your PATH that you may write to: --bin FOLDER")
	}
	if found, err := exec.LookPath(HelperName); err != nil {
		a.Note("warning: %s is not on your PATH, and Docker will not find %s", dir, HelperName)
	} else if found, _ = filepath.EvalSymlinks(found); found != self {
		a.Note("warning: another %s comes first on your PATH", HelperName)
	}
	return nil
}

// relink makes link lead to target. It takes the place of another link, but not
// of a file.
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

// nameHelper puts this program into Docker's settings for one host, and leaves
// the rest of them as it is.
func (c dockerConfig) nameHelper(host string) error {
	helpers := map[string]string{}
	if err := c.get("credHelpers", &helpers); err != nil {
		return err
	}
	if helpers[host] == helper {
		return nil
	}
	if helpers == nil {
		helpers = map[string]string{}
	}
	helpers[host] = helper
	return c.put("credHelpers", helpers)
}

// CredentialHelper answers Docker, which calls it with a verb and what it is
// about on standard input.
func CredentialHelper(a *noun.App) *cobra.Command {
	cmd := a.Branch("credential-helper", "Answer Docker, which asks for the password of the registry")
	cmd.Hidden = true // Docker calls it, by its other name
	for verb, answer := range map[string]func(context.Context, *noun.App) error{
		"get": helperGet, "list": helperList, "erase": helperErase, "store": helperStore,
	} {
		cmd.AddCommand(&cobra.Command{
			Use: verb, Short: "Answer the verb " + verb, Args: cobra.NoArgs,
			RunE: a.Do(func(ctx context.Context, _ *cobra.Command, _ []string) error { return answer(ctx, a) }),
		})
	}
	return cmd
}

// notFound is what Docker takes for somebody without a password.
const notFound = "credentials not found in native keychain"

// helperGet answers with a fresh token, if the registry asked about is the
// server's.
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

// isRegistry tells whether Docker means a host: it may write an address.
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
	api, err := a.Server()
	if err != nil {
		return "", "", err
	}
	token, err = a.TokenFor(ctx, api, host)
	return host, token, err
}

// helperList answers which passwords there are.
func helperList(ctx context.Context, a *noun.App) error {
	host, err := registry.Host(ctx, a)
	if err != nil {
		return err
	}
	return json.NewEncoder(a.Out).Encode(map[string]string{host: loginName})
}

// helperErase has nothing to forget: nothing was kept.
func helperErase(context.Context, *noun.App) error { return nil }

// helperStore refuses passwords: there is one for every command.
func helperStore(_ context.Context, a *noun.App) error {
	p := problem.Usage("passwords are not kept: docker login is not needed")
	fmt.Fprintln(a.Out, p.Text)
	return p
}
