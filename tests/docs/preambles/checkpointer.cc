// Between two steps of a loop.
double evaluate();
void between(holdfast::Checkpointer& checkpointer) {
  // BLOCK
}
