package app_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tidegate/app"
	"tidegate/robot/engine"
)

var docBlock = regexp.MustCompile("(?ms)^( *)```yaml (config|rules)\n(.*?)^ *```$")

// What docs/existing-bot.md tells people to write works as it stands there.
func TestThePageOnExistingBots(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "docs", "existing-bot.md"))
	require.NoError(t, err)
	blocks := map[string]string{}
	for _, m := range docBlock.FindAllStringSubmatch(string(page), -1) {
		blocks[m[2]] = strings.ReplaceAll("\n"+m[3], "\n"+m[1], "\n")
	}
	require.Len(t, blocks, 2)
	dir := t.TempDir()
	config := strings.ReplaceAll(blocks["config"], "/etc/tidegate/secrets/", filepath.ToSlash(dir)+"/")
	for name, secret := range map[string]string{"old-bot-token": "token", "old-bot-aes-key": secretFor("aes"), "tidegate.yaml": config} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(secret), 0o600))
	}
	c, err := app.LoadConfig(filepath.Join(dir, "tidegate.yaml"), nil)
	require.NoError(t, err)
	require.NoError(t, c.Robot.Validate())
	rules, err := engine.Parse("rules.yaml", []byte(blocks["rules"]), engine.Known{Backends: c.Robot.BackendNames(), Bots: c.Robot.BotNames()})
	require.NoError(t, err)
	require.Equal(t, []string{"old"}, rules.Bots())
}
