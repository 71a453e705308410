"""The comparison of attentions on scattered fields: every attention on every task over seeds."""
