package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/iam"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/noun"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/output"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/problem"
	"github.com/holdfast-dev/holdfast/cmd/holdfast/internal/signin"
	iampb "github.com/holdfast-dev/holdfast/gen/iam/v2beta1"
)

const (
	pullRole       = "registry.pull"
	pullTokensPath = "/pull-tokens" // suffix of the issuer's address in pull tokens
	maxPullLife    = 365 * 24 * time.Hour
)

// pullTokensCommand returns the commands about pull tokens.
func pullTokensCommand(a *noun.App) *cobra.Command {
	cmd := a.Branch("pull-token", "Create and revoke passwords that can only pull images",
		createPullToken(a), listPullTokens(a), revokePullToken(a))
	cmd.Long = "A pull token is an identity with the role " + pullRole +
		" and a password, which is a token signed with a key\n" +
		"that is not stored. Use pull tokens for programs that support only a user name and a password. Workloads with a\n" +
		"token of their platform do not need them."
	return cmd
}

// A pullToken is the output of the command that creates a pull token. The token is printed
// only once.
type pullToken struct {
	Registry string `json:"registry"`
	Username string `json:"username"`
	Password string `json:"password,omitempty"`
	Expiry   string `json:"expiry"`
}

func createPullToken(a *noun.App) *cobra.Command {
	var group, name, life string
	var save bool
	cmd := &cobra.Command{
		Use: "create --group GROUP", Short: "Create a pull token and print its password, once",
		Example: "  holdfast auth pull-token create --group acme/platform --name laptop --life 30d --save-docker",
		Args:    cobra.NoArgs,
		RunE: a.Ask(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			if group == "" {
				return problem.Usage("--group is needed")
			}
			d, err := noun.ParseDuration(life)
			if err != nil || d < time.Minute || d > maxPullLife {
				return problem.Usage("--life: %q is not a duration from 1m to 365d", life)
			}
			t, err := makePullToken(ctx, a, group, name, d)
			if err != nil {
				return err
			}
			if save {
				if err := saveDocker(ctx, a, &t); err != nil {
					undoPuller(ctx, a, t.Username)
					return fmt.Errorf("the pull token was deleted again, because it could not be saved: %w", err)
				}
			}
			return printPullToken(a, t)
		}),
	}
	a.RegisterRef(cmd, &group, "group", noun.Groups(), "`GROUP` whose images it can pull, including subgroups")
	cmd.Flags().StringVar(&name, "name", "", "`NAME` of the pull token (default: pull-token- and random digits)")
	cmd.Flags().StringVar(&life, "life", "720h", "`DURATION` for which it is valid, such as 12h or 30d; at most 365d")
	cmd.Flags().BoolVar(&save, "save-docker", false,
		"store the password for docker instead of printing it")
	return cmd
}

func makePullToken(ctx context.Context, a *noun.App, group, name string, life time.Duration) (t pullToken, err error) {
	group, err = a.Resolve(ctx, noun.Groups(), group)
	if err != nil {
		return t, fmt.Errorf("--group: %w", err)
	}
	role, err := a.Resolve(ctx, iam.Roles(), "/"+pullRole)
	if err != nil {
		return t, err
	}
	if t.Registry, err = a.RegistryAddress(); err != nil {
		return t, err
	}
	issuer, err := a.Issuer()
	if err != nil {
		return t, err
	}
	if name == "" {
		name = "pull-token-" + randomHex(4)
	}
	issued := time.Now().Truncate(time.Second)
	subject := randomHex(16)
	password, keys, err := signPullToken(map[string]any{
		"iss": issuer + pullTokensPath, "sub": subject, "aud": issuer, "iat": issued.Unix(), "exp": issued.Add(life).Unix(),
		"jti": randomHex(16),
	})
	if err != nil {
		return t, err
	}
	t.Password, t.Expiry = password, output.ShortTime(issued.Add(life))
	t.Username, err = createPuller(ctx, a, group, role, &iampb.Identity{
		Name: name, Description: "Pulls images, with a password",
		Relationship: &iampb.Identity_StaticKeys_{StaticKeys: &iampb.Identity_StaticKeys{
			Issuer: issuer + pullTokensPath, Subject: subject, IssuerKeys: keys,
			ExpirationTime: timestamppb.New(issued.Add(life)),
		}},
	})
	return t, err
}

// createPuller creates an identity and its role binding. If the binding fails, it deletes
// the identity.
func createPuller(
	ctx context.Context, a *noun.App, group, role string, identity *iampb.Identity,
) (uid string, err error) {
	req := &iampb.CreateIdentityRequest{Parent: group, Identity: identity}
	service := iampb.NewIdentitiesServiceClient(a)
	m, err := signin.Call(ctx, service.CreateIdentity, req, "parent=--group", "name=--name",
		"static_keys.expiration_time=--life")
	if err != nil {
		return "", err
	}
	uid = m.GetUid()
	if err = iam.Bind(ctx, a, uid, role, group); err == nil {
		return uid, nil
	}
	undoPuller(ctx, a, uid)
	return "", err
}

// undoPuller deletes an identity that was created, but whose password was never printed.
func undoPuller(ctx context.Context, a *noun.App, uid string) {
	req := &iampb.DeleteIdentityRequest{Uid: uid}
	_, err := signin.Call(context.WithoutCancel(ctx), iampb.NewIdentitiesServiceClient(a).DeleteIdentity, req)
	if err != nil {
		a.Note("identity %s could not be deleted: %v", uid, err)
	}
}

// signPullToken signs claims with a new key. It returns the token and the public key as a
// JSON Web Key Set. The private key is not stored.
func signPullToken(claims map[string]any) (token, keys string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	point, err := key.PublicKey.Bytes() // the byte 4, followed by x and y
	if err != nil {
		return "", "", err
	}
	encode := base64.RawURLEncoding.EncodeToString
	id := randomHex(8)
	set, err := json.Marshal(map[string]any{"keys": []any{map[string]string{
		"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": id, "x": encode(point[1:33]),
		"y": encode(point[33:65]),
	}}})
	if err != nil {
		return "", "", err
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", "", err
	}
	text := encode([]byte(`{"alg":"ES256","kid":"`+id+`","typ":"JWT"}`)) + "." + encode(payload)
	digest := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
	if err != nil {
		return "", "", err
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return text + "." + encode(signature), string(set), nil
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

func printPullToken(a *noun.App, t pullToken) error {
	format, err := a.Value("output")
	if err != nil {
		return err
	}
	switch format.Text {
	case "json":
		return a.JSON(t)
	case "id":
		fmt.Fprintln(a.Out, t.Username)
		return nil
	case "yaml", "csv":
		return problem.Usage("a pull token can only be printed with -o table, json or id")
	}
	a.Pairs([][2]string{{"registry", t.Registry}, {"username", t.Username}, {"password", t.Password}, {"until", t.Expiry}})
	if t.Password != "" {
		a.Note("the password is not shown again; to use it: docker login --username %s --password-stdin %s", t.Username,
			t.Registry)
	}
	return nil
}

// pullTokens returns the Noun for identities that are pull tokens.
func pullTokens() noun.Noun {
	n := iam.Identities()
	n.Use, n.One = "pull-tokens", "pull token"
	n.Columns = output.Columns("name", output.PathOf("path", "uid"),
		"expires=staticKeys.expirationTime", "lastSeen=lastSeenTime")
	n.Wide = output.Columns("uid", "description", "createTime")
	return n
}

// isPullToken reports whether an identity is a pull token.
func isPullToken(m protoreflect.Message, issuer string) bool {
	return m.Interface().(*iampb.Identity).GetStaticKeys().GetIssuer() == issuer+pullTokensPath
}

func listPullTokens(a *noun.App) *cobra.Command {
	var group string
	cmd := &cobra.Command{
		Use: "list", Short: "List pull tokens", Aliases: []string{"ls"}, Args: cobra.NoArgs,
		RunE: a.Ask(func(ctx context.Context, _ *cobra.Command, _ []string) error {
			issuer, err := a.Issuer()
			if err != nil {
				return err
			}
			req := &iampb.ListIdentitiesRequest{RelationshipType: iampb.RelationshipType_RELATIONSHIP_TYPE_STATIC}
			if err := a.Within(ctx, group, req); err != nil {
				return fmt.Errorf("--group: %w", err)
			}
			var found []*iampb.Identity
			for m, err := range a.Items(ctx, iam.Identities().Method("List"), req.ProtoReflect(), noun.Paging{}) {
				if err != nil {
					return err
				}
				if isPullToken(m, issuer) {
					found = append(found, m.Interface().(*iampb.Identity))
				}
			}
			return noun.ShowAll(ctx, a, pullTokens().View(), found)
		}),
	}
	a.RegisterRef(cmd, &group, "group", noun.Groups(), "only pull tokens in `GROUP` and its subgroups")
	return cmd
}

func revokePullToken(a *noun.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "revoke PULL-TOKEN...", Short: "Delete pull tokens",
		Args: cobra.MinimumNArgs(1),
		RunE: a.Ask(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			issuer, err := a.Issuer()
			if err != nil {
				return err
			}
			for _, text := range args {
				uid, err := a.Resolve(ctx, pullTokens(), text)
				if err != nil {
					return err
				}
				m, err := a.Get(ctx, iam.Identities(), uid)
				if err != nil {
					return err
				}
				if !isPullToken(m, issuer) {
					return problem.Usage("%s is an identity, but not a pull token", strings.TrimSpace(text)).
						Hint("to delete it: holdfast iam identities delete " + uid)
				}
			}
			return a.Delete(ctx, pullTokens(), cmd, args)
		}),
	}
	cmd.Flags().BoolP("yes", "y", false, "do not ask for confirmation")
	noun.AddDryRun(cmd)
	return cmd
}
